/** Every fault is told with its exact place, all at once; what is right becomes an AppConfig. */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import fc from "fast-check";
import { formatProblems } from "./format-problems.ts";
import { readApp } from "./read-app.ts";

const directory = await realpath(await mkdtemp(join(tmpdir(), "landfall-config-")));
after(() => rm(directory, { recursive: true, force: true }));
let apps = 0;

type Files = Record<string, string>;

const base: Files = {
  "metadata.toml": 'version = "v2"\nname = "shop"\ndisplay_name = "Shop"\n',
  "sandbox.toml": 'type = "local"\n',
  "inputs.toml":
    '[[group]]\nname = "look"\n\n[[input]]\nname = "title"\ngroup = "look"\ndefault = 5\n',
  "components/database.toml":
    'name = "database"\ntype = "process"\ncommand = ["node", "db.mjs"]\n\n[source]\npath = "./src/db"\n',
  "src/db/db.mjs": "",
};

async function writeApp(files: Files): Promise<string> {
  const root = join(directory, `app${++apps}`);
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  }
  return root;
}

/** The errors (and, when asked, warnings) of the base app with these files changed. */
async function problemsOf(files: Files, severity: "error" | "warning" = "error") {
  const { config, problems } = await readApp(await writeApp({ ...base, ...files }));
  if (problems.some((problem) => problem.severity === "error")) assert.equal(config, null);
  return problems
    .filter((problem) => problem.severity === severity)
    .map(({ position, message }) => ({
      place: position ? `${position.file}:${position.line}:${position.column}` : "",
      message,
    }));
}

async function assertProblem(
  files: Files,
  place: string,
  message: RegExp,
  severity: "error" | "warning" = "error",
): Promise<void> {
  const problems = await problemsOf(files, severity);
  assert.deepEqual(
    problems.map((problem) => problem.place),
    [place],
    JSON.stringify(problems),
  );
  assert.match(problems[0]?.message ?? "", message);
}

test("an app is read into its configuration, with defaults, implied dependencies and needs", async () => {
  const root = await writeApp({
    ...base,
    "components/keys.toml":
      'name = "keys"\ntype = "job"\ncommand = ["node", "k.mjs"]\ntimeout = "30s"\n[outputs]\nuser = "string"\npassword = { type = "string", sensitive = true }\n',
    "components/nested/web.toml":
      'name = "web"\ntype = "process"\ncommand = ["node", "w.mjs"]\nport = 8080\nneeds = ["gpu"]\ndependencies = ["keys"]\n[env_vars]\nDB = "{{ .nuon.components.database.outputs.url }}"\nT = "{{ .nuon.inputs.inputs.title }}"\n[health]\nhttp = "/healthz"\n',
    "components/infra.toml":
      'name = "infra"\ntype = "terraform_module"\n[source]\npath = "src/tf/"\n[vars]\nurl = "{{ .landfall.components.web.outputs.url }}"\n[[var_file]]\ncontents = "./infra.tfvars"\n',
    "components/infra.tfvars": 'user = "{{ .nuon.components.keys.outputs.user }}"\n',
    "src/tf/main.tf": "",
  });

  const { config, problems } = await readApp(root);

  assert.deepEqual(problems, []);
  assert.deepEqual(config, {
    name: "shop",
    displayName: "Shop",
    description: "",
    sandbox: { type: "local", config: {} },
    inputs: [
      {
        name: "title",
        displayName: "title",
        description: "",
        group: "look",
        default: "5",
        required: false,
        sensitive: false,
      },
    ],
    components: [
      {
        name: "database",
        type: "process",
        dependencies: [],
        source: { path: "src/db" },
        config: { command: ["node", "db.mjs"], port: 0 },
        outputs: {},
        needs: ["process"],
        position: { file: "components/database.toml", line: 1, column: 1 },
      },
      {
        name: "infra",
        type: "terraform_module",
        dependencies: ["keys", "web"],
        source: { path: "src/tf" },
        config: {
          vars: { url: "{{ .landfall.components.web.outputs.url }}" },
          var_file: [{ contents: 'user = "{{ .nuon.components.keys.outputs.user }}"\n' }],
        },
        outputs: {},
        needs: ["terraform"],
        position: { file: "components/infra.toml", line: 1, column: 1 },
      },
      {
        name: "keys",
        type: "job",
        dependencies: [],
        source: null,
        config: {
          command: ["node", "k.mjs"],
          timeout: "30s",
          outputs: { user: { sensitive: false }, password: { sensitive: true } },
        },
        outputs: { user: { sensitive: false }, password: { sensitive: true } },
        needs: ["process"],
        position: { file: "components/keys.toml", line: 1, column: 1 },
      },
      {
        name: "web",
        type: "process",
        dependencies: ["database", "keys"],
        source: null,
        config: {
          command: ["node", "w.mjs"],
          port: 8080,
          env_vars: {
            DB: "{{ .nuon.components.database.outputs.url }}",
            T: "{{ .nuon.inputs.inputs.title }}",
          },
          health: { http: "/healthz" },
        },
        outputs: {},
        needs: ["gpu", "process"],
        position: { file: "components/nested/web.toml", line: 1, column: 1 },
      },
    ],
  });
});

test("an app is named after its folder unless its metadata says otherwise", async () => {
  const root = await writeApp({ ...base, "metadata.toml": 'version = "v1"\n' });

  assert.match((await readApp(root)).config?.name ?? "", /^app\d+$/);
});

const component = (lines: string) => ({ "components/x.toml": lines });
const process = 'name = "x"\ntype = "process"\ncommand = ["x"]\n';

test("a syntax error is told at its line", async () => {
  await assertProblem(
    component('name = "x"\ntype = process\n'),
    "components/x.toml:2:8",
    /syntax error/,
  );
});

test("a syntax error in a file that is not used yet is told too", async () => {
  await assertProblem(
    { "actions/a.toml": "\n\nx = [1,,2]\n" },
    "actions/a.toml:3:8",
    /syntax error/,
  );
});

test("an unknown component type is refused with the one that was meant", async () => {
  await assertProblem(
    component('name = "x"\ntype = "proces"\n'),
    "components/x.toml:2:8",
    /got `proces`\. Did you mean `process`\?/,
  );
});

test("a type that the format knows and this version does not is refused as such", async () => {
  await assertProblem(
    component('name = "x"\n\ntype   = "helm_chart"\nchart_name = "x"\n'),
    "components/x.toml:3:10",
    /`helm_chart`: the app format has it, but this version cannot deploy it yet/,
  );
});

test("a missing type and a missing name are both told", async () => {
  const problems = await problemsOf({
    "components/x.toml": "a = 1\n",
    "components/y.toml": 'type = "job"\n',
  });

  assert.deepEqual(
    problems.map(({ place, message }) => `${place} ${message}`),
    [
      "components/x.toml:1:1 Expected the key `name`, got none. Add it.",
      "components/x.toml:1:1 Expected the key `type`, got none. Add it.",
      "components/y.toml:1:1 Expected the key `name`, got none. Add it.",
      "components/y.toml:1:1 Expected the key `command`, got none. Add it.",
    ],
  );
});

test("a value of the wrong type is told where it stands, and how to write it", async () => {
  await assertProblem(
    component(`${process}[env_vars]\nA = "a"\nB = 5\n`),
    "components/x.toml:6:5",
    /Expected `env_vars.B` to be text, got the number 5\. Write it in quotes: `"5"`/,
  );
  await assertProblem(
    component('name = "x"\ntype = "process"\ncommand = "node"\n'),
    "components/x.toml:3:11",
    /Expected `command` to be a list, got `node`/,
  );
  await assertProblem(
    component(`${process}port = 70000\n`),
    "components/x.toml:4:8",
    /at most 65535/,
  );
  await assertProblem(
    component(`${process}restart = "allways"\n`),
    "components/x.toml:4:11",
    /one of `always`, `never`, got `allways`\. Did you mean `always`\?/,
  );
});

test("an unknown key is a warning with the key that was meant, and the app is read all the same", async () => {
  const files = component(`${process}dependancies = []\n[health]\nhttp = "/"\nintervall = "1s"\n`);

  const warnings = await problemsOf(files, "warning");

  assert.deepEqual(
    warnings.map(({ place }) => place),
    ["components/x.toml:4:1", "components/x.toml:7:1"],
  );
  assert.match(warnings[0]?.message ?? "", /Did you mean `dependencies`\?/);
  assert.match(warnings[1]?.message ?? "", /Did you mean `interval`\?/);
  assert.deepEqual(await problemsOf(files), []);
});

test("a wrong duration and a health check in two ways are refused", async () => {
  await assertProblem(
    component('name = "x"\ntype = "job"\ncommand = ["x"]\ntimeout = "1 day"\n'),
    "components/x.toml:4:1",
    /a duration such as `30s`/,
  );
  await assertProblem(
    component(`${process}[health]\nhttp = "/a"\ntcp = true\n`),
    "components/x.toml:4:1",
    /exactly one of/,
  );
});

test("two components of one name are refused at the second", async () => {
  await assertProblem(
    { "components/zzz.toml": '# again\nname = "database"\ntype = "noop"\n' },
    "components/zzz.toml:2:8",
    /`database` again; it is also in `components\/database.toml`, line 1/,
  );
});

test("a name with a hyphen is refused", async () => {
  await assertProblem(
    component('name = "my-app"\ntype = "noop"\n'),
    "components/x.toml:1:8",
    /lower-case/,
  );
});

test("a dependency on nothing is told where it is listed", async () => {
  await assertProblem(
    component(`${process}dependencies = [\n  "database",\n  "databse",\n]\n`),
    "components/x.toml:6:3",
    /got `databse`, which does not exist\. Did you mean `database`\?/,
  );
});

test("a dependency on itself is refused, listed or implied", async () => {
  await assertProblem(
    component(`${process}dependencies = ["x"]\n`),
    "components/x.toml:4:17",
    /itself/,
  );
  await assertProblem(
    component(`${process}[env_vars]\nU = "{{.nuon.components.x.outputs.url}}"\n`),
    "components/x.toml:5:8",
    /itself/,
  );
});

test("a cycle is told once, with its whole path, through listed and implied dependencies", async () => {
  await assertProblem(
    {
      "components/a.toml": 'name = "a"\ntype = "noop"\ndependencies = ["b"]\n',
      "components/b.toml": 'name = "b"\ntype = "noop"\nnote = "{{.nuon.components.c.outputs.x}}"\n',
      "components/c.toml": 'name = "c"\ntype = "noop"\ndependencies = ["a"]\n',
    },
    "components/a.toml:3:17",
    /the cycle `a` → `b` → `c` → `a`/,
  );
});

test("two cycles are both told", async () => {
  const noop = (name: string, on: string) =>
    `name = "${name}"\ntype = "noop"\ndependencies = ["${on}"]\n`;
  const problems = await problemsOf({
    "components/a.toml": noop("a", "b"),
    "components/b.toml": noop("b", "a"),
    "components/c.toml": noop("c", "d"),
    "components/d.toml": noop("d", "c"),
  });

  assert.deepEqual(
    problems.map(({ place }) => place),
    ["components/a.toml:3:17", "components/c.toml:3:17"],
  );
});

test("a template that does not parse is told at the letter", async () => {
  await assertProblem(
    component(`${process}[env_vars]\nA = "x {{ uper .nuon.install.id }}"\n`),
    "components/x.toml:5:11",
    /Did you mean `upper`\?/,
  );
});

test("references to nothing are told at the letter, also in long strings and after escapes", async () => {
  await assertProblem(
    component(
      `${process}[env_vars]\nA = """\nfirst\n  {{ .nuon.components.nope.outputs.url }}"""\n`,
    ),
    "components/x.toml:7:6",
    /got `nope`/,
  );
  await assertProblem(
    component(`${process}[env_vars]\nA = "\\t\\"{{.nuon.components.nope.outputs.url}}"\n`),
    "components/x.toml:5:12",
    /got `nope`/,
  );
  await assertProblem(
    component(`${process}[env_vars]\nA = '{{ .nuon.inputs.inputs.tilte }}'\n`),
    "components/x.toml:5:9",
    /declared in `inputs.toml`, got `tilte`.*Did you mean `title`\?/,
  );
  await assertProblem(
    component(`${process}[env_vars]\nA = '{{ .nuon.inputs.title }}'\n`),
    "components/x.toml:5:9",
    /Write `inputs` twice/,
  );
  await assertProblem(
    component(`${process}[env_vars]\nA = '{{ .nuon.instal.id }}'\n`),
    "components/x.toml:5:9",
    /Did you mean `.nuon.install`\?/,
  );
});

test("an output that is not declared is refused where outputs are declared, and only there", async () => {
  await assertProblem(
    component(`${process}[env_vars]\nA = "{{ .nuon.components.database.outputs.uri }}"\n`),
    "components/x.toml:5:9",
    /an output of `database` \(`url`, `port`\), got `uri`/,
  );
  const job = (outputs: string) => ({
    "components/j.toml": `name = "j"\ntype = "job"\ncommand = ["x"]\n${outputs}`,
    ...component(`${process}[env_vars]\nA = "{{ .nuon.components.j.outputs.key }}"\n`),
  });
  assert.deepEqual(await problemsOf(job("")), []);
  await assertProblem(
    job('[outputs]\nkeys = "string"\n'),
    "components/x.toml:5:9",
    /Did you mean `keys`\?/,
  );
});

test("a fault in a file that a value names is told in that file", async () => {
  await assertProblem(
    {
      "components/tf.toml":
        'name = "tf"\ntype = "terraform_module"\n[source]\npath = "./src/db"\n[[var_file]]\ncontents = "./v.tfvars"\n',
      "components/v.tfvars": "a = 1\nb = {{ .nuon.components.gone.outputs.x }}\n",
    },
    "components/v.tfvars:2:8",
    /got `gone`/,
  );
});

test("a file that a value names and that does not exist is refused", async () => {
  await assertProblem(
    {
      "components/tf.toml":
        'name = "tf"\ntype = "terraform_module"\n[source]\npath = "./src/db"\n[[var_file]]\ncontents = "./v.tfvars"\n',
    },
    "components/tf.toml:6:12",
    /a file at `components\/v.tfvars`, got nothing there/,
  );
  await assertProblem(
    { "metadata.toml": 'version = "v2"\nreadme = "./../../etc/passwd"\n' },
    "metadata.toml:2:10",
    /leaves the app's directory/,
  );
});

test("a source that does not exist, is a file, or leaves the root is refused", async () => {
  const source = (path: string) => component(`${process}\n[source]\npath = "${path}"\n`);

  await assertProblem(source("./src/nope"), "components/x.toml:6:8", /got nothing there/);
  await assertProblem(source("./src/db/db.mjs"), "components/x.toml:6:8", /got file/);
  await assertProblem(source("../"), "components/x.toml:6:8", /leaves the app's directory/);
  await assertProblem(source("/tmp"), "components/x.toml:6:8", /leaves the app's directory/);
});

test("a source that leaves the root through a link is refused", async () => {
  const root = await writeApp({ ...base, ...component(`${process}[source]\npath = "./link"\n`) });
  await symlink("/usr", join(root, "link"));

  const { problems } = await readApp(root);

  assert.deepEqual(
    problems.map(({ position }) => position),
    [{ file: "components/x.toml", line: 5, column: 8 }],
  );
});

test("a loop of links in the app is walked once", async () => {
  const root = await writeApp(base);
  await symlink(join(root, "components"), join(root, "components/again"));

  assert.deepEqual((await readApp(root)).problems, []);
});

test("files that an app must have are told when they are missing", async () => {
  const { problems } = await readApp(await writeApp({ "README.md": "" }));

  assert.deepEqual(
    problems.map(({ position }) => position?.file),
    ["components", "metadata.toml", "runner.toml", "sandbox.toml"],
  );
});

test("a directory that does not exist is one problem", async () => {
  const { config, problems } = await readApp(join(directory, "nowhere"));

  assert.equal(config, null);
  assert.equal(problems.length, 1);
});

test("a sandbox that this version cannot provision is refused", async () => {
  const runner = { "runner.toml": 'runner_type = "aws"\n' };
  await assertProblem(
    { ...runner, "sandbox.toml": '# x\ntype = "pulumi"\n' },
    "sandbox.toml:2:8",
    /`pulumi`: the app format has it, but this version cannot provision it yet/,
  );
  await assertProblem(
    { ...runner, "sandbox.toml": 'type = "locl"\n' },
    "sandbox.toml:1:8",
    /Did you mean `local`/,
  );
});

test("faulty inputs are told at their own entry", async () => {
  const inputs =
    '[[input]]\nname = "a"\n\n[[input]]\nname = "a"\n\n[[input]]\nname = "b"\ngroup = "nope"\nrequired = "yes"\n\n[[input]]\nname = "c"\ngroup = "nope"\n';

  const problems = await problemsOf({ "inputs.toml": inputs });

  assert.deepEqual(
    problems.map(({ place }) => place),
    ["inputs.toml:5:1", "inputs.toml:10:12", "inputs.toml:14:9"],
  );
});

test("inputs may lie in folders, but not in both forms", async () => {
  const folders = {
    "inputs/x/a.toml": 'name = "a"\ngroup = "g"\n',
    "input_groups/g.toml": 'name = "g"\n',
  };

  await assertProblem(folders, "inputs.toml:1:1", /got both/);
  assert.deepEqual(await problemsOf({ ...folders, "inputs.toml": "" }), []);
});

test("what this version does not use is one warning for each kind", async () => {
  const files = {
    "actions/a.toml": 'name = "a"\n',
    "actions/b.toml": 'name = "b"\n',
    "stack.toml": 'type = "x"\n',
    "secrets.toml": "# nothing\n",
  };

  const warnings = await problemsOf(files, "warning");

  assert.deepEqual(
    warnings.map(({ place }) => place),
    ["actions/a.toml:1:1", "stack.toml:1:1"],
  );
});

test("all problems of all files come at once, in the order of files and lines", async () => {
  const problems = await problemsOf({
    "components/a.toml": 'name = "a"\ntype = "nope"\n',
    "components/b.toml": "name = \n",
    "components/c.toml": 'name = "c"\ntype = "noop"\ndependencies = ["gone", "d"]\n',
    "components/d.toml":
      'name = "d"\ntype = "noop"\nx = "{{ .nuon.components.c.outputs.x }}{{ .nuon.components.gone.outputs.y }}"\n',
  });

  assert.deepEqual(
    problems.map(({ place }) => place),
    [
      "components/a.toml:2:8",
      "components/b.toml:1:8",
      "components/c.toml:3:17",
      "components/c.toml:3:25",
      "components/d.toml:3:43",
    ],
  );
});

test("a component with faults of its own can still be referred to", async () => {
  await assertProblem(
    {
      "components/bad.toml": 'name = "bad"\ntype = "process"\n',
      ...component(
        `${process}dependencies = ["bad"]\n[env_vars]\nA = "{{.nuon.components.bad.outputs.x}}"\n`,
      ),
    },
    "components/bad.toml:1:1",
    /`command`/,
  );
});

test("problems are shown with the line and a caret under the cause", () => {
  const position = { file: "components/x.toml", line: 12, column: 4 };

  const text = formatProblems(
    [
      { severity: "error", message: "Expected a, got b.", position },
      { severity: "warning", message: "Hm.", position: null },
    ],
    () => "\ta = 5",
  );

  assert.equal(
    text,
    "components/x.toml:12:4: error: Expected a, got b.\n   12 | \ta = 5\n      | \t  ^\nwarning: Hm.",
  );
});

test("any text in a component's file gives problems, never a crash", async () => {
  const root = await writeApp(base);
  const words = fc.constantFrom(
    'name = "x"',
    'type = "process"',
    'type = "noop"',
    "[a]",
    "[[a.b]]",
    "x = {a = 1}",
    "[outputs]",
    "__proto__ = 1",
    'command = ["x"]',
    "d = 2020-01-01",
    "n = nan",
    '"{{ .nuon.x"',
    "{",
    "]",
    "=",
    '"""',
    "#",
    "\r\n",
    "[health]",
    "dependencies = [1]",
    "source = 5",
  );
  await fc.assert(
    fc.asyncProperty(
      fc.oneof(
        fc.string(),
        fc.array(words, { maxLength: 8 }).map((lines) => lines.join("\n")),
      ),
      async (text) => {
        await writeFile(join(root, "components/x.toml"), text);
        const { problems } = await readApp(root);
        for (const { position } of problems) assert(position && position.line >= 1);
      },
    ),
    { numRuns: 100 },
  );
});
