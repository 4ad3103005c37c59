/** The API's documentation as one page, from its OpenAPI description: every route, every schema. */
import { type Html, html, readAsset, renderPage } from "./html.ts";

interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly additionalProperties?: Schema | boolean;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly default?: unknown;
  readonly description?: string;
}

type Content = Readonly<Record<string, { readonly schema?: Schema }>>;

interface Operation {
  readonly summary?: string;
  readonly tags?: readonly string[];
  readonly security?: readonly Readonly<Record<string, unknown>>[];
  readonly parameters?: readonly {
    readonly name: string;
    readonly in: string;
    readonly required?: boolean;
    readonly schema?: Schema;
  }[];
  readonly requestBody?: { readonly content?: Content };
  readonly responses?: Readonly<Record<string, { readonly content?: Content }>>;
}

interface Document {
  readonly paths?: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components?: { readonly schemas?: Readonly<Record<string, Schema>> };
}

/** The page. */
export async function renderDocs(description: object, nonce: string): Promise<string> {
  const { paths = {}, components = {} } = description as Document;
  const [base, own] = await Promise.all([readAsset("page.css"), readAsset("docs.css")]);
  const rows = Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => ({ path, method, operation })),
  );
  const groups = Map.groupBy(rows, ({ operation }) => operation.tags?.[0] ?? "other");
  const schemas = Object.entries(components.schemas ?? {});
  return renderPage(
    { title: "API · Landfall", nonce, styles: base + own },
    html`<header class="bar"><h1><span class="mark" aria-hidden="true"></span>Landfall API</h1>
<nav><a href="/openapi.json">openapi.json</a><a href="/">Status</a></nav></header>
<main>
<p>Send a token with every request: <code>Authorization: Bearer lft_…</code>.
An error has the status of its kind and says what to do:
<code>{ "error": { "code", "message", "problems" } }</code>.</p>
${[...groups].map(
  ([group, operations]) => html`<section class="group"><h2>${group}</h2>
${operations.map(({ path, method, operation }) => renderOperation(path, method, operation))}</section>`,
)}
<section class="group"><h2>Schemas</h2>
${schemas.map(
  ([name, schema]) => html`<details class="card" id="schema-${name}" open>
<summary><strong>${name}</strong></summary><div><pre>${renderSchema(schema, "")}</pre></div></details>`,
)}</section>
</main>`,
  );
}

function renderOperation(path: string, method: string, operation: Operation): Html {
  const { summary = "", parameters = [], requestBody, responses = {} } = operation;
  const verb = method.toUpperCase();
  return html`<details class="card"><summary><span class="method ${verb}">${verb}</span>
<code>${path}</code><span class="quiet">${summary}</span></summary><div>
<h4>Who</h4>${describeCaller(operation)}
${parameters.length === 0 ? null : html`<h4>Parameters</h4><table>${parameters.map(renderParameter)}</table>`}
${renderContent("Body", requestBody?.content)}
${renderContent("Answer", responses["200"]?.content)}
</div></details>`;
}

function renderParameter(parameter: NonNullable<Operation["parameters"]>[number]): Html {
  const { name, in: place, required, schema = {} } = parameter;
  const fallback =
    schema.default === undefined ? "" : `, ${JSON.stringify(schema.default)} if left out`;
  return html`<tr><td><code>${name}</code></td><td>${renderSchema(schema, "")}</td>
<td class="quiet">${place}${required ? "" : ", optional"}${fallback}</td></tr>`;
}

function renderContent(title: string, content: Content = {}): Html | null {
  const entries = Object.entries(content);
  if (entries.length === 0) return null;
  return html`${entries.map(
    ([type, { schema = {} }]) => html`<h4>${title} <span class="quiet mono">${type}</span></h4>
<pre>${renderSchema(schema, "")}</pre>`,
  )}`;
}

const callers: Readonly<Record<string, string>> = {
  token: "a token",
  session: "a browser that has signed in",
  enrolmentCode: "an agent with an enrolment code (Authorization: Enrolment …)",
  jobToken: "a job, with the token of that job",
};

function describeCaller({ security = [] }: Operation): string {
  const names = security.flatMap((scheme) => Object.keys(scheme));
  return names.map((name) => callers[name] ?? name).join(", or ") || "anyone";
}

/** A schema as one would write it down: names, `?` for what may be left out, `|` between choices. */
function renderSchema(schema: Schema, indent: string): Html {
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1) ?? "";
    return html`<a href="#schema-${name}">${name}</a>`;
  }
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices)
    return join(
      choices.map((choice) => renderSchema(choice, indent)),
      " | ",
    );
  if (schema.const !== undefined) return html`${JSON.stringify(schema.const)}`;
  if (schema.enum) return html`${schema.enum.map((value) => JSON.stringify(value)).join(" | ")}`;
  if (schema.items) return html`${renderSchema(schema.items, indent)}[]`;
  if (schema.properties) return renderProperties(schema, indent);
  if (typeof schema.additionalProperties === "object") {
    return html`{ [name]: ${renderSchema(schema.additionalProperties, indent)} }`;
  }
  if (schema.type === undefined) return html`any JSON`;
  return html`${[schema.type].flat().join(" | ")}`;
}

function renderProperties({ properties = {}, required = [] }: Schema, indent: string): Html {
  const inner = `${indent}  `;
  const lines = Object.entries(properties).map(([name, property]) => {
    const note = property.description
      ? html`  <span class="quiet">// ${property.description}</span>`
      : null;
    return html`${inner}${name}${required.includes(name) ? "" : "?"}: ${renderSchema(property, inner)}${note}`;
  });
  if (lines.length === 0) return html`{}`;
  return html`{
${join(lines, "\n")}
${indent}}`;
}

function join(parts: readonly Html[], separator: string): Html {
  return html`${parts.map((part, index) => (index === 0 ? part : html`${separator}${part}`))}`;
}
