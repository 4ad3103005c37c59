/**
 * The way to the server: straight or through a proxy's CONNECT tunnel, with TLS at its end where the
 * address asks for it. Enrolment and the connection take the same way.
 *
 *   agent ── TCP (TLS, for an https proxy) ──> proxy ── CONNECT ──> server ── TLS, end to end
 *
 * Invariants: a certificate counts only when Node's own, the system's or the configured authorities
 * signed it for the server's name; every failure says which side refused and what to do; nothing of
 * a proxy's password is in it.
 */
import { X509Certificate } from "node:crypto";
import { request } from "node:http";
import { isIP, connect as openTcp, type Socket } from "node:net";
import {
  createSecureContext,
  getCACertificates,
  connect as openTls,
  type SecureContext,
} from "node:tls";
import { describeError, Fault } from "../model/fault.ts";
import { readText } from "./foreign-file.ts";
import { hostOf, isSecure, type ProxyAddress, portOf } from "./proxy-choice.ts";

const openMs = 10_000;
const caFileBytesMax = 4 * 1024 * 1024;

export interface Route {
  /** A stream to the server on which HTTP/1.1 can begin; throws a `Fault` with `unavailable`. */
  open(target: URL, signal: AbortSignal): Promise<Socket>;
}

export interface RouteOptions {
  readonly proxyFor: (target: URL) => ProxyAddress | null;
  /** Certificates (PEM) that are trusted besides Node's and the system's; null for none. */
  readonly extraAuthorities: string | null;
}

interface Place {
  readonly host: string;
  readonly port: number;
}

/** The way that the configuration describes. */
export function createRoute({ proxyFor, extraAuthorities }: RouteOptions): Route {
  let context: SecureContext | null = null;
  // Hundreds of certificates are parsed here, so once, and only where TLS is spoken at all.
  const trust = () => (context ??= createSecureContext({ ca: authorities(extraAuthorities) }));

  async function openPlain(target: URL, signal: AbortSignal): Promise<Socket> {
    const place = { host: hostOf(target), port: portOf(target) };
    const proxy = proxyFor(target);
    if (!proxy) return connectTcp(place, `the server at ${nameOf(place)}`, signal);
    const what = `the proxy at ${proxy.name}`;
    const tcp = await connectTcp(proxy, what, signal);
    const socket = proxy.secure ? await secure(tcp, proxy.host, what, trust(), signal) : tcp;
    return openTunnel(socket, place, proxy, signal);
  }

  return {
    async open(target, signal) {
      const limit = AbortSignal.any([signal, AbortSignal.timeout(openMs)]);
      const socket = await openPlain(target, limit);
      // Between here and its first use it must not fail unheard; whoever uses it hears of its end.
      socket.on("error", () => {});
      if (!isSecure(target)) return socket;
      const what = `the server at ${nameOf({ host: hostOf(target), port: portOf(target) })}`;
      const secured = await secure(socket, hostOf(target), what, trust(), limit);
      secured.on("error", () => {});
      return secured;
    },
  };
}

/** The certificates in the file that the configuration names as `caFile`. */
export async function readAuthorities(file: string | undefined): Promise<string | null> {
  if (file === undefined) return null;
  const text = (await readText(file, caFileBytesMax)) ?? "";
  try {
    for (const certificate of splitPem(text)) new X509Certificate(certificate);
    if (splitPem(text).length > 0) return text;
  } catch {
    // Told below.
  }
  throw new Fault(
    "invalid",
    `Expected certificates in PEM (-----BEGIN CERTIFICATE-----) in ${file}, as \`caFile\` says, got none that can be read. Correct it and start the agent again.`,
  );
}

function authorities(extra: string | null): string[] {
  const known = [...getCACertificates("default"), ...getCACertificates("system")];
  return [...new Set([...known, ...splitPem(extra ?? "")])];
}

function splitPem(text: string): string[] {
  return text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
}

function connectTcp(place: Place, what: string, signal: AbortSignal): Promise<Socket> {
  const socket = openTcp({ host: place.host, port: place.port, noDelay: true });
  return settled(socket, "connect", signal, (error) =>
    unavailable(`Expected to reach ${what}, got: ${describeFailure(error)}.`, error),
  );
}

function secure(
  socket: Socket,
  host: string,
  what: string,
  secureContext: SecureContext,
  signal: AbortSignal,
): Promise<Socket> {
  const servername = isIP(host) ? "" : host;
  const secured = openTls({ socket, host, servername, secureContext, ALPNProtocols: ["http/1.1"] });
  return settled(secured, "secureConnect", signal, (error) =>
    unavailable(explainTls(what, error), error),
  );
}

/** Any answer to CONNECT but 200 is the proxy's refusal, whatever its body says. */
function openTunnel(
  socket: Socket,
  { host, port }: Place,
  proxy: ProxyAddress,
  signal: AbortSignal,
): Promise<Socket> {
  const authority = nameOf({ host, port });
  const { authorization } = proxy;
  const asked = request({
    createConnection: () => socket,
    method: "CONNECT",
    path: authority,
    headers: { host: authority, ...(authorization && { "proxy-authorization": authorization }) },
    signal,
  });
  return new Promise((resolve, reject) => {
    asked.once(
      "connect",
      ({ statusCode = 0, statusMessage = "" }, tunnel: Socket, head: Buffer) => {
        if (statusCode === 200) {
          if (head.length > 0) tunnel.unshift(head);
          return resolve(tunnel);
        }
        socket.destroy();
        reject(unavailable(explainRefusal(proxy, authority, statusCode, statusMessage)));
      },
    );
    asked.once("error", (error) => {
      socket.destroy();
      const failure = describeFailure(signal.aborted ? signal.reason : error);
      const reason = `Expected the proxy at ${proxy.name} to open a tunnel to ${authority}, got: ${failure}.`;
      reject(unavailable(`${reason} Check that it is an HTTP proxy.`, error));
    });
    asked.end();
  });
}

/** The socket once the event has come; destroyed when it fails or the time is over. */
function settled(
  socket: Socket,
  event: "connect" | "secureConnect",
  signal: AbortSignal,
  explain: (error: unknown) => Fault,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const finish = (act: () => void) => {
      signal.removeEventListener("abort", abort);
      socket.removeListener("error", fail);
      socket.removeListener("close", close);
      act();
    };
    const fail = (error: unknown) =>
      finish(() => {
        socket.on("error", () => {}).destroy();
        reject(explain(error));
      });
    const abort = () => fail(signal.reason);
    const close = () => fail(new Error("the connection was closed"));
    socket.once(event, () => finish(() => resolve(socket)));
    socket.once("error", fail);
    socket.once("close", close);
    signal.addEventListener("abort", abort, { once: true });
    if (signal.aborted) abort();
  });
}

function explainRefusal(proxy: ProxyAddress, target: string, status: number, text: string): string {
  const expected = `Expected the proxy at ${proxy.name} to open a tunnel to ${target}`;
  if (status === 407) {
    return proxy.authorization
      ? `${expected}, but it does not take the user and password of its URL (HTTP 407). Correct them in \`proxy\` of the agent's configuration, or in HTTPS_PROXY.`
      : `${expected}, but it wants a user and password (HTTP 407). Put them into its URL, http://user:password@${proxy.name}, in \`proxy\` of the agent's configuration, or in HTTPS_PROXY.`;
  }
  const words = text.replace(/[^\x20-\x7e]/g, "").slice(0, 100);
  return `${expected}, got HTTP ${status}${words && ` (${words})`}. Allow CONNECT to ${target} there, or name the server in \`noProxy\` if it can be reached without the proxy.`;
}

function explainTls(what: string, error: unknown): string {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (/SELF_SIGNED|UNABLE_TO_(GET_ISSUER|VERIFY)|CERT_UNTRUSTED/.test(code)) {
    return `Expected a certificate of ${what} that a known authority signed, got one that is not trusted here (${code}). If a private authority signed it, or a proxy on the way opens TLS, put that authority's certificate into a file and name it as \`caFile\` in the agent's configuration.`;
  }
  if (/^(CERT_|ERR_TLS_CERT)/.test(code)) {
    return `Expected a valid certificate of ${what}, got: ${describeFailure(error)}. Renew it, or correct \`serverUrl\`.`;
  }
  return `Expected to speak TLS with ${what}, got: ${describeFailure(error)}.`;
}

/** Happy Eyeballs gives one error for all addresses, with an empty message. */
function describeFailure(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) {
    return describeFailure(error.errors[0]);
  }
  if (error instanceof Error && error.name === "TimeoutError") {
    return `nothing within ${openMs / 1000} s`;
  }
  return describeError(error).replace(/\.$/, "");
}

function nameOf({ host, port }: Place): string {
  return `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
}

function unavailable(message: string, cause?: unknown): Fault {
  return new Fault("unavailable", message, { cause });
}
