/**
 * The API described in OpenAPI 3.1, from the same rows and schemas that serve it: what is documented
 * is what is checked.
 */
import type { FastifySchema } from "fastify";
import { z } from "zod";
import type { Caller, Route } from "./route.ts";
import { namedSchemas } from "./schemas.ts";

type JsonSchema = Record<string, unknown>;

const schemaRoot = "#/components/schemas/";

/** What does not belong to one route. */
export function describeDocument(publicUrl: string) {
  return {
    openapi: "3.1.0" as const,
    info: {
      title: "Landfall",
      version: "1",
      description:
        "The server's API. Send a token as `Authorization: Bearer …`; an error is `{ error: { code, message, problems } }`.",
    },
    servers: [{ url: publicUrl }],
    components: {
      securitySchemes: {
        token: { type: "http" as const, scheme: "bearer", description: "An API token, `lft_…`." },
        session: { type: "apiKey" as const, in: "cookie" as const, name: "landfall_session" },
        enrolmentCode: {
          type: "apiKey" as const,
          in: "header" as const,
          name: "Authorization",
          description: "`Enrolment <code>`: works once.",
        },
        jobToken: {
          type: "http" as const,
          scheme: "bearer",
          bearerFormat: "JWT",
          description: "The token of one job, for one scope.",
        },
      },
    },
  };
}

const security = {
  anyone: [],
  token: [{ token: [] }, { session: [] }],
  "enrolment-code": [{ enrolmentCode: [] }],
  "job-token": [{ jobToken: [] }],
} satisfies Record<Caller, readonly Record<string, string[]>[]>;

/** All named schemas as JSON Schema, referring to each other by name. */
export function describeSchemas(): Record<string, JsonSchema> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(namedSchemas)) registry.add(schema, { id });
  // The input form on both sides: our transforms change types only, never the JSON itself.
  const { schemas } = z.toJSONSchema(registry, {
    io: "input",
    unrepresentable: "any",
    uri: (id) => `${schemaRoot}${id}`,
    override({ zodSchema, jsonSchema }) {
      if (zodSchema._zod.def.type !== "lazy") return;
      for (const key of Object.keys(jsonSchema)) delete jsonSchema[key];
    },
  });
  return Object.fromEntries(
    Object.keys(namedSchemas).map((id) => [id, tidy(schemas[id]) as JsonSchema]),
  );
}

/** One row of the table, as Fastify and its describer take it. */
export function describeRoute(route: Route): FastifySchema {
  const { group, summary, caller, params, query, body, answer, answerType, bodyKind } = route;
  const answerSchema = answer ? reference(answer) : { type: "string" };
  const bodyType =
    bodyKind === "stream"
      ? "application/gzip"
      : bodyKind === "form"
        ? "application/x-www-form-urlencoded"
        : "application/json";
  return {
    summary,
    tags: [group],
    security: security[caller],
    ...(params ? { params: inline(params) } : {}),
    ...(query ? { querystring: inline(query) } : {}),
    ...(body ? { body: { content: { [bodyType]: { schema: reference(body) } } } } : {}),
    ...(bodyKind === "stream"
      ? { body: { content: { [bodyType]: { schema: { type: "string", format: "binary" } } } } }
      : {}),
    response: {
      200: { description: summary, content: { [answerType]: { schema: answerSchema } } },
      "4xx": {
        description: "Refused, with the reason",
        content: { "application/json": { schema: { $ref: `${schemaRoot}ApiError` } } },
      },
    },
  } as FastifySchema;
}

function reference(schema: z.ZodType): JsonSchema {
  const [id] = Object.entries(namedSchemas).find(([, known]) => known === schema) ?? [];
  return id ? { $ref: `${schemaRoot}${id}` } : inline(schema);
}

function inline(schema: z.ZodType): JsonSchema {
  return tidy(z.toJSONSchema(schema, { io: "input", unrepresentable: "any" })) as JsonSchema;
}

/** Without the marks that only make sense outside of OpenAPI; a shared "any JSON" becomes `{}`. */
function tidy(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(tidy);
  if (value === null || typeof value !== "object") return value;
  if ("$ref" in value && String(value.$ref).includes("__shared")) return {};
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key, inner]) => !isNoise(key, inner))
      .filter(([key]) => !["$schema", "$id", "id", "$defs"].includes(key) || isProperty(value, key))
      .map(([key, inner]) => [key, tidy(inner)]),
  );
}

/** Every integer is safe; to say so of each is noise. */
function isNoise(key: string, inner: unknown): boolean {
  return (
    (key === "minimum" && inner === Number.MIN_SAFE_INTEGER) ||
    (key === "maximum" && inner === Number.MAX_SAFE_INTEGER)
  );
}

/** `id` is also the name of many properties: then its value is a schema, not text. */
function isProperty(value: object, key: string): boolean {
  return typeof (value as JsonSchema)[key] === "object" && key === "id";
}
