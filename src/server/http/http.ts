/**
 * The HTTP server: Fastify with the route table, and the same steps for every row: headers, caller,
 * input, handler, answer.
 *
 * Requests under `/v2/` go to the registry before Fastify sees them, byte for byte; the agents'
 * gateway listens to `app.server`'s `upgrade` event.
 */
import { createServer, type IncomingMessage } from "node:http";
import fastifyCookie from "@fastify/cookie";
import fastifySwagger from "@fastify/swagger";
import fastify, {
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type FastifySchema,
} from "fastify";
import { Fault, isFault } from "../../model/fault.ts";
import type { ServerContext } from "../context.ts";
import type { Token } from "../tokens.ts";
import { answerError, parseInput } from "./answers.ts";
import { authenticate, setSessionCookie } from "./auth.ts";
import { describeDocument, describeRoute, describeSchemas } from "./openapi.ts";
import type { Call, Route } from "./route.ts";
import { routes } from "./routes.ts";
import { setSecurityHeaders } from "./security-headers.ts";
import { createServices, type HttpOptions, type HttpServices } from "./services.ts";

declare module "fastify" {
  interface FastifyRequest {
    identity: Token | null;
  }
}

const registryPrefix = "/v2/";
/** Long enough for a large upload over a slow line. */
const requestTimeoutMs = 15 * 60_000;
const headersTimeoutMs = 20_000;

/** Makes the server; the caller lets it listen, and closes it. */
export async function createHttp(
  context: ServerContext,
  options: HttpOptions = {},
): Promise<FastifyInstance> {
  const app = createFastify(options, (request, status) => {
    if (status === 401 || status === 403) void services.refusals.recordForwarded(request);
  });
  const services = createServices(context, options, () => app.swagger());
  app.addHook("onClose", async () => services.close());
  app.setErrorHandler((error, request, reply) => answerError(context, error, request, reply));
  app.setNotFoundHandler((request, reply) => answerNotFound(context, request, reply));
  // Input is parsed by the zod schemas themselves; their JSON form is for the description only.
  app.setValidatorCompiler(() => () => true);
  app.setSerializerCompiler(() => (data) => JSON.stringify(data));
  app.decorateRequest("identity", null);
  app.addHook("onRequest", async (_request, reply) => setSecurityHeaders(reply));
  app.addHook("onResponse", async (request, reply) => observe(services, request, reply));
  await app.register(fastifyCookie);
  await app.register(fastifySwagger, {
    openapi: describeDocument(context.publicUrl),
    // When somebody asks for it: to describe every route at the start would cost a tenth of a second.
    transform: ({ url, route }) => ({ schema: describeRow(url, route.method), url }),
    transformObject,
  });
  for (const kind of ["json", "form", "stream"] as const) {
    await app.register(async (scope) => {
      readBodies(scope, kind);
      for (const route of routes) if (route.bodyKind === kind) addRoute(scope, services, route);
    });
  }
  await app.ready();
  return app;
}

function createFastify(
  { registry }: HttpOptions,
  onForwarded: (request: IncomingMessage, status: number) => void,
): FastifyInstance {
  return fastify({
    logger: false,
    exposeHeadRoutes: false,
    // Live streams never end by themselves.
    forceCloseConnections: true,
    serverFactory: (handle) =>
      createServer(
        { requestTimeout: requestTimeoutMs, headersTimeout: headersTimeoutMs },
        (request, response) => {
          if (!registry || !isForRegistry(request.url)) return handle(request, response);
          response.once("finish", () => onForwarded(request, response.statusCode));
          registry.forward(request, response);
        },
      ),
  });
}

function isForRegistry(url = ""): boolean {
  return url.startsWith(registryPrefix) || /^\/v2(\?|$)/.test(url);
}

function addRoute(app: FastifyInstance, services: HttpServices, route: Route): void {
  app.route({
    method: route.method,
    url: route.path,
    bodyLimit: route.bodyBytesMax,
    onRequest: (request, reply) => admit(services, route, request, reply),
    handler: (request, reply) => route.handle(toCall(services, route, request, reply)),
  });
}

/** Lets a caller in whom the row admits. A person without a session is led to the sign-in page. */
async function admit(
  services: HttpServices,
  route: Route,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<unknown> {
  if (route.caller !== "token") return;
  try {
    request.identity = await authenticate(services, request);
  } catch (error) {
    const isPerson = route.page && (request.headers.accept ?? "").includes("text/html");
    if (!isPerson || !isFault(error, "unauthorized")) throw error;
    setSessionCookie(services, reply, null);
    return reply.redirect("/sign-in", 303);
  }
}

function toCall(
  services: HttpServices,
  route: Route,
  request: FastifyRequest,
  reply: FastifyReply,
): Call<unknown, unknown, unknown> {
  const { identity } = request;
  const gone = new AbortController();
  reply.raw.once("close", () => gone.abort());
  return {
    services,
    identity,
    actor: identity ? `token:${identity.id}` : "anonymous",
    params: route.params ? parseInput(route.params, "path", request.params) : {},
    query: route.query ? parseInput(route.query, "query", request.query) : {},
    body: route.body ? parseInput(route.body, "body", request.body ?? {}) : {},
    request,
    reply,
    signal: gone.signal,
  };
}

function readBodies(app: FastifyInstance, kind: Route["bodyKind"]): void {
  app.removeAllContentTypeParsers();
  if (kind === "stream") {
    app.addContentTypeParser("*", (_request, _payload, done) => done(null));
    return;
  }
  app.addContentTypeParser<string>(
    "application/json",
    { parseAs: "string" },
    (_request, text, done) => {
      if (text === "") done(null, undefined);
      else parseJson(text, done);
    },
  );
  if (kind === "form") {
    app.addContentTypeParser<string>(
      "application/x-www-form-urlencoded",
      { parseAs: "string" },
      (_request, text, done) => done(null, Object.fromEntries(new URLSearchParams(text))),
    );
  }
}

function parseJson(text: string, done: (error: Error | null, value?: unknown) => void): void {
  try {
    done(null, JSON.parse(text));
  } catch {
    done(new Fault("invalid", "Expected a body in JSON, got text that does not parse."));
  }
}

function answerNotFound(
  context: ServerContext,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const fault = new Fault("not_found", "Expected the path of a route, got another. See /docs.");
  return answerError(context, fault, request, reply);
}

function observe(services: HttpServices, request: FastifyRequest, reply: FastifyReply): void {
  services.metrics.observe({
    method: request.method,
    route: request.routeOptions.url ?? "none",
    status: reply.statusCode,
    seconds: reply.elapsedTime / 1000,
  });
}

function describeRow(url: string, method: string | readonly string[]): FastifySchema {
  const row = routes.find((route) => route.path === url && route.method === method);
  return row ? describeRoute(row) : { hide: true };
}

function transformObject(document: { openapiObject?: object; swaggerObject?: object }): object {
  const described = (document.openapiObject ?? {}) as { components?: object };
  return { ...described, components: { ...described.components, schemas: describeSchemas() } };
}
