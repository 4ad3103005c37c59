/** Templates as app files use them, what they refuse, and what they tell about sensitive values. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import fc from "fast-check";
import type { Json } from "./json.ts";
import {
  parseTemplate,
  referencesOf,
  renderJson,
  renderTemplate,
  Sensitive,
  TemplateError,
  type TemplateValue,
} from "./template.ts";

const values: TemplateValue = {
  install: { id: "ins_1", name: "acme" },
  inputs: { inputs: { title: "Hello", count: "3", empty: "" } },
  sandbox: { outputs: { zones: ["a", "b"], size: 12345678, ratio: 0.5, on: true, none: null } },
  components: {
    database: {
      outputs: { url: "http://db:1", port: 8080, password: new Sensitive('s3"cret'), user: "bo" },
    },
  },
};

function render(text: string): string {
  return renderTemplate(parseTemplate(text), values).text;
}

function errorOf(text: string): TemplateError {
  try {
    render(text);
  } catch (error) {
    assert(error instanceof TemplateError, String(error));
    return error;
  }
  return assert.fail(`no error for ${text}`);
}

const examples: [string, string][] = [
  ["{{.nuon.install.id}}", "ins_1"],
  ["{{ .landfall.install.name }}", "acme"],
  ["n-{{ $.nuon.install.id }}-x", "n-ins_1-x"],
  ["a {{- .nuon.install.id -}} b", "ains_1b"],
  ["a {{/* why */}}{{.nuon.install.id}}", "a ins_1"],
  ["a {{- /* why */ -}} b{{.nuon.install.id}}", "abins_1"],
  ["{{.nuon.sandbox.outputs.size}}", "12345678"],
  ["{{.nuon.sandbox.outputs.ratio}}", "0.5"],
  ["{{.nuon.sandbox.outputs.zones}}", "[a b]"],
  ["{{dict `b` 2 `a` .nuon.install.id}}", "map[a:ins_1 b:2]"],
  ["{{.nuon.sandbox.outputs.none}}", ""],
  ['{{join "," .nuon.sandbox.outputs.zones}}', "a,b"],
  ["{{ .nuon.sandbox.outputs.zones | join `-` | upper }}", "A-B"],
  ["{{ index .nuon.sandbox.outputs.zones 1 }}", "b"],
  ['{{ index .nuon.components "database" "outputs" "port" }}', "8080"],
  ['{{ index .nuon.components "absent" }}', ""],
  [
    '{{ printf "%s-%05d|%-4s|%q %v%%" .nuon.install.id 42 "a" "q" true }}',
    'ins_1-00042|a   |"q" true%',
  ],
  ["{{ print 1 2 .nuon.install.id 3 }}", "1 2ins_13"],
  ["{{ len .nuon.sandbox.outputs.zones }}", "2"],
  ["{{ if eq .nuon.inputs.inputs.title `Hello` `x` }}y{{ else }}n{{ end }}", "y"],
  [
    "{{ if eq .nuon.install.name `x` }}1{{ else if ne .nuon.install.name `y` }}2{{ else }}3{{ end }}",
    "2",
  ],
  ["{{ if and .nuon.install.id (gt (len .nuon.sandbox.outputs.zones) 1) }}y{{ end }}", "y"],
  ["{{ or .nuon.inputs.inputs.empty `fallback` }}", "fallback"],
  ["{{ if not .nuon.inputs.inputs.empty }}e{{end}}", "e"],
  [
    "{{ with .nuon.components.database.outputs }}{{ .url }} {{ $.nuon.install.id }}{{ end }}",
    "http://db:1 ins_1",
  ],
  ["{{ with .nuon.inputs.inputs.empty }}x{{ else }}none{{ end }}", "none"],
  ["{{ range .nuon.sandbox.outputs.zones }}<{{ . }}>{{ end }}", "<a><b>"],
  ["{{ range $i, $z := .nuon.sandbox.outputs.zones }}{{ $i }}={{ $z }};{{ end }}", "0=a;1=b;"],
  ["{{ range $k, $v := .nuon.install }}{{ $k }}={{ $v }};{{ end }}", "id=ins_1;name=acme;"],
  ["{{ $x := `a` }}{{ if .nuon.install.id }}{{ $x = `b` }}{{ end }}{{ $x }}", "b"],
  ["{{ $x := `a` }}{{ if .nuon.install.id }}{{ $x := `b` }}{{ end }}{{ $x }}", "a"],
  ["{{ default `d` .nuon.inputs.inputs.empty }}", "d"],
  ["{{ dig `outputs` `nope` `d` .nuon.components.database }}", "d"],
  ["{{ dig `outputs` `port` `d` .nuon.components.database }}", "8080"],
  ["{{ ternary `y` `n` (eq .nuon.install.name `acme`) }}", "y"],
  [
    "{{ keys .nuon.install | join `,` }} {{ values .nuon.install | join `,` }}",
    "id,name ins_1,acme",
  ],
  ["{{ toJson (dict `b` 1 `a` (list .nuon.install.id nil)) }}", '{"a":["ins_1",null],"b":1}'],
  ["{{ toPrettyJson .nuon.install }}", '{\n  "id": "ins_1",\n  "name": "acme"\n}'],
  ['{{ (fromJson "{\\"a\\": {\\"b\\": 7}}").a.b }}{{ .nuon.install.id }}', "7ins_1"],
  ["{{ quote .nuon.install.id }} {{ squote .nuon.install.id }}", "\"ins_1\" 'ins_1'"],
  ["{{ .nuon.install.name | upper | lower | trimPrefix `a` | trimSuffix `e` }}", "cm"],
  ["{{ replace `c` `-` .nuon.install.name }}", "a-me"],
  [
    "{{ contains `cm` .nuon.install.name }}{{ hasPrefix `x` `y` }}{{ hasSuffix `e` `me` }}",
    "truefalsetrue",
  ],
  ["{{ b64enc .nuon.install.name }} {{ b64dec `YWNtZQ==` }}", "YWNtZQ== acme"],
  ["{{ (split `_` .nuon.install.id)._1 }}", "1"],
  ["{{ coalesce `` nil .nuon.install.id }}{{ empty 0 }}", "ins_1true"],
  ["{{ int .nuon.inputs.inputs.count }}{{ lt (int `2`) 3 }}{{ toString 5 }}", "3true5"],
  ["a:{{ nindent 2 `x\ny` }}{{ indent 1 .nuon.install.id }}", "a:\n  x\n  y ins_1"],
  ["{{ required `set it` .nuon.install.id }}", "ins_1"],
  ["<b>&{{ `<i>` }}{{ .nuon.install.id }}", "<b>&<i>ins_1"],
  ["{{ `{{ raw }}` }}{{ .nuon.install.id }}", "{{ raw }}ins_1"],
];

for (const [template, expected] of examples) {
  test(`${JSON.stringify(template)} gives ${JSON.stringify(expected)}`, () => {
    assert.equal(render(template), expected);
  });
}

test("text that names the root in no action is passed through, whatever braces it holds", () => {
  for (const text of [
    "{{element.name}} {{ nuon.install.id }}",
    "stage.nuon.run {{ .Values.x }}",
    "{{ unclosed",
    "{{ end }}",
    "{{ .nuonic.x }}",
  ]) {
    assert.equal(render(text), text);
  }
});

const faults: [string, number, RegExp][] = [
  ["ab {{ .nuon.install.nope }}", 6, /`\.nuon\.install\.nope`, got none.*`id`, `name`/],
  ["{{ .nuon.install.nmae }}", 3, /Did you mean `name`\?/],
  ["{{ .nuon.components.web.outputs.url }}", 3, /`web` is not among this component's dependencies/],
  ["{{ .nuon.components.database.outputs.pasword }}", 3, /it gave `password`, `port`/],
  ["{{ .nuon.inputs.inputs.nope }}", 3, /declared in `inputs.toml`/],
  ["{{ .nuon.install.id.deeper }}", 3, /Expected a map before `\.deeper`/],
  ["{{ .nuon.sandbox.outputs.none.x }}", 3, /Expected a map before `\.x`/],
  ["{{ if .nuon.install.nope }}x{{ end }}", 6, /`\.nuon\.install\.nope`/],
  ["{{ .nuon.install.id", 0, /Expected `}}` to close/],
  ["{{ if .nuon.install.id }}x", 0, /Expected `{{end}}`/],
  ["{{ .nuon.install.id }}{{ end }}", 25, /Expected a block that this `end` belongs to/],
  ["{{ upperr .nuon.install.id }}", 3, /got `upperr`. Did you mean `upper`\?/],
  ["{{ nuon.install.id }}{{ .nuon.x }}", 3, /got `nuon`/],
  ["{{ .nuon.components.my-app.outputs.x }}", 22, /got `-`. Use `index`/],
  ["{{ $y }}{{ .nuon.x }}", 3, /got `\$y`/],
  ["{{ .nuon.install.id | 5 }}", 22, /Expected a function after `\|`/],
  ["{{ .nuon.install.id .nuon.install.name }}", 20, /Expected `\|` or `}}`/],
  ["{{ upper }}{{ .nuon.x }}", 3, /Expected 1 arguments for `upper`, got 0/],
  ["{{ eq .nuon.inputs.inputs.count 3 }}", 3, /got text and a number/],
  ["{{ required `set the title` .nuon.inputs.inputs.empty }}", 3, /set the title/],
  ["{{ define `x` }}{{ .nuon.x }}{{ end }}", 3, /got `define`/],
  ["{{ 'x' }}{{ .nuon.x }}", 3, /double quotes/],
  ["{{ index .nuon.sandbox.outputs.zones 7 }}", 3, /an index below 2, got another/],
];

for (const [template, offset, reason] of faults) {
  test(`${JSON.stringify(template)} is refused at ${offset}`, () => {
    const error = errorOf(template);

    assert.match(error.reason, reason);
    assert.equal(error.offset, offset);
  });
}

test("an error tells line and column in the text, and shows the line", () => {
  const error = errorOf("first\nsecond {{ .nuon.install.nope }}\nthird");

  assert.deepEqual([error.line, error.column], [2, 11]);
  assert.match(error.message, /line 2, column 11 of `second {{ \.nuon\.install\.nope }}`/);
});

test("references are every path from the root, also through with and index", () => {
  const template = parseTemplate(
    '{{ .nuon.install.id }}\n{{ with .nuon.components.db }}{{ .outputs.url }}{{ $.landfall.inputs.inputs.a }}{{ end }}{{ index .nuon.components "x" "outputs" }}{{ range .nuon.app.list }}{{ .name }}{{ end }}',
  );

  assert.deepEqual(
    referencesOf(template).map(({ path, line, optional }) => [path.join("."), line, optional]),
    [
      ["install.id", 1, false],
      ["components.db", 2, false],
      ["components.db.outputs.url", 2, false],
      ["inputs.inputs.a", 2, false],
      ["components", 2, false],
      ["components.x.outputs", 2, true],
      ["app.list", 2, false],
    ],
  );
});

const password = ".nuon.components.database.outputs.password";
const sensitiveUses: [string, string, string[]][] = [
  [`{{ ${password} }}`, 's3"cret', ['s3"cret']],
  [`u:{{ ${password} | b64enc }}@h`, "u:czMiY3JldA==@h", ['s3"cret', "czMiY3JldA=="]],
  [`{{ if ${password} }}set{{ end }}`, "set", ['s3"cret']],
  [`{{ $p := ${password} }}{{ $q := upper $p }}[{{ $q }}]`, '[S3"CRET]', ['s3"cret', 'S3"CRET']],
  [`{{ with ${password} }}{{ . }}{{ end }}`, 's3"cret', ['s3"cret']],
  [`{{ index .nuon.components.database.outputs "password" }}`, 's3"cret', ['s3"cret']],
  [`{{ toJson (list ${password}) }}`, '["s3\\"cret"]', ['s3"cret', '["s3\\"cret"]']],
  [
    `{{ range .nuon.components.database.outputs }}{{ . }},{{ end }}`,
    's3"cret,8080,http://db:1,bo,',
    ['s3"cret'],
  ],
  [`{{ len ${password} }}`, "7", ['s3"cret', "7"]],
  [`{{ default \`x\` ${password} }}`, 's3"cret', ['s3"cret']],
  [`{{ $x := and ${password} "plain" }}{{ $x }}`, "plain", ['s3"cret', "plain"]],
  [`{{ if or false ${password} }}y{{ end }}`, "y", ['s3"cret']],
  [
    `{{ printf "%s:%s" .nuon.install.name ${password} }}`,
    'acme:s3"cret',
    ['s3"cret', 'acme:s3"cret'],
  ],
];

for (const [template, expected, texts] of sensitiveUses) {
  test(`${JSON.stringify(template)} is known to be sensitive`, () => {
    const rendered = renderTemplate(parseTemplate(template), values);

    assert.equal(rendered.text, expected);
    assert.equal(rendered.sensitive, true);
    assert.deepEqual([...rendered.sensitiveTexts].sort(), [...texts].sort());
  });
}

test("text made beside sensitive values, without looking at them, is not sensitive", () => {
  for (const text of [
    "{{ .nuon.components.database.outputs.url }}",
    "{{ len .nuon.components.database.outputs }}",
    "{{ keys .nuon.components.database.outputs }}",
    "{{ or .nuon.install.id .nuon.components.database.outputs.password }}",
    `{{ $unused := ${password} }}{{ .nuon.install.id }}`,
  ]) {
    assert.equal(renderTemplate(parseTemplate(text), values).sensitive, false, text);
  }
});

test("a wrapped object stays sensitive however deep one reaches into it", () => {
  const inside = { o: new Sensitive({ a: { b: "deep" }, list: ["x"] }) };

  for (const text of ["{{ .nuon.o.a.b }}", "{{ range .nuon.o.list }}{{ . }}{{ end }}"]) {
    assert.equal(renderTemplate(parseTemplate(text), inside).sensitive, true, text);
  }
});

test("an error about a sensitive object does not tell which keys it has", () => {
  const inside = { o: new Sensitive({ canary: 1 }) };

  assert.throws(
    () => renderTemplate(parseTemplate("{{ .nuon.o.nope }}"), inside),
    (error) => error instanceof TemplateError && !error.message.includes("canary"),
  );
});

test("values nested too deep are refused as such", () => {
  const nest = "{{ $x := list 1 }}{{ range 90 }}{{ $x = list $x }}{{ end }}{{ $x }}{{ .nuon.x }}";

  assert.match(errorOf(nest).reason, /nested values/);
});

test("errors never show a sensitive value", () => {
  for (const text of [
    `{{ int ${password} }}`,
    `{{ fromJson ${password} }}`,
    `{{ ${password}.x }}`,
    `{{ lt ${password} 3 }}`,
    `{{ index .nuon.install ${password} "x" "y" }}{{ .nuon.x }}`,
    `{{ required ${password} "" }}`,
  ]) {
    assert(!errorOf(text).message.includes("s3"), text);
  }
});

test("a sensitive value prints as stars in text, JSON and inspection", () => {
  const secret = new Sensitive("canary");

  assert.equal(
    `${secret} ${JSON.stringify({ secret })} ${inspect({ secret })}`,
    '*** {"secret":"***"} { secret: *** }',
  );
});

test("every text of a configuration is rendered, keys and other values stay", () => {
  const config: Json = {
    "{{ .nuon.install.id }}": 1,
    command: ["node", "{{ .nuon.install.name }}"],
    env_vars: { P: `x-{{ ${password} }}`, Q: "{{ element }}" },
    on: true,
    none: null,
  };

  const rendered = renderJson(config, values);

  assert.deepEqual(rendered.value, {
    "{{ .nuon.install.id }}": 1,
    command: ["node", "acme"],
    env_vars: { P: 'x-s3"cret', Q: "{{ element }}" },
    on: true,
    none: null,
  });
  assert.deepEqual(rendered.sensitiveTexts, ['s3"cret']);
});

const bombs = [
  "{{ range 100000 }}{{ range 100000 }}x{{ end }}{{ end }}{{ .nuon.x }}",
  "{{ $x := `0123456789` }}{{ range 60 }}{{ $x = print $x $x }}{{ end }}{{ .nuon.x }}",
  "{{ $x := list 1 }}{{ range 60 }}{{ $x = list $x $x }}{{ end }}{{ toJson $x }}{{ .nuon.x }}",
  "{{ $x := list 1 }}{{ range 9000 }}{{ $x = list $x }}{{ end }}{{ $x }}{{ .nuon.x }}",
  "{{ $x := `aaaaaaaaaa` }}{{ range 20 }}{{ $x = replace `a` $x $x }}{{ end }}{{ .nuon.x }}",
  `{{ ${"(".repeat(5000)}1${")".repeat(5000)} }}{{ .nuon.x }}`,
  `${"{{ if true }}".repeat(5000)}{{ .nuon.x }}${"{{ end }}".repeat(5000)}`,
  `{{ 1${" | toString".repeat(20000)} }}{{ .nuon.x }}`,
  `{{ $x := .nuon.install.id }}${" ".repeat(100_000)}x {{- $x }}`.repeat(9),
];

for (const [at, bomb] of bombs.entries()) {
  test(`a template that would take all time or memory ends soon (${at})`, () => {
    const startedAt = performance.now();
    try {
      render(bomb);
    } catch (error) {
      assert(error instanceof TemplateError, String(error));
    }
    assert(performance.now() - startedAt < 10_000);
  });
}

const pieces = fc.constantFrom(
  ...'{{|}}|{{- | -}}|.nuon.install.id|.nuon|.landfall.x|if |else |end|with |range |$x|:=|=|(|)|"|`|,|.| |index |printf |dict |toJson |1|-1|1e999|nil|true|/*|*/|\\|\n|é'.split(
    "|",
  ),
  "|",
);

test("arbitrary text never gives anything but text or a TemplateError", () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.array(pieces, { maxLength: 30 }).map((parts) => parts.join("")),
      ),
      (text) => {
        try {
          const rendered = renderTemplate(parseTemplate(text), values);
          assert.equal(typeof rendered.text, "string");
        } catch (error) {
          assert(error instanceof TemplateError, String(error));
          assert(error.offset >= 0 && error.offset <= text.length && error.line >= 1);
        }
      },
    ),
    { numRuns: 5000 },
  );
});

test("text without an action is passed through untouched", () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      fc.pre(!text.includes("{{"));
      assert.deepEqual(renderTemplate(parseTemplate(text), values), {
        text,
        sensitive: false,
        sensitiveTexts: [],
      });
    }),
  );
});

test("any text written as a literal comes out as it went in", () => {
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), (text) => {
      fc.pre(!/[^ -~\n]/.test(text));
      assert.equal(render(`{{ ${JSON.stringify(text)} }}{{ .nuon.install.id }}`), `${text}ins_1`);
    }),
  );
});
