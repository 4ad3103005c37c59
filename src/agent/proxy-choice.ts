/**
 * Which proxy, if any, stands between the agent and its server; pure.
 *
 * The configuration wins over the environment. The environment's proxy is never used for this very
 * machine (`localhost`, 127.0.0.0/8, ::1), so that a laptop with a proxy can run everything locally.
 *
 * Invariant: the user and password in a proxy's URL are in `authorization` and nowhere else; `name` is
 * what may be shown.
 */
import { BlockList, isIP } from "node:net";
import { Fault } from "../model/fault.ts";

export interface ProxyAddress {
  readonly secure: boolean;
  readonly host: string;
  readonly port: number;
  /** `host:port`, for people. */
  readonly name: string;
  /** The value of `Proxy-Authorization`; a secret. */
  readonly authorization: string | null;
}

export interface ProxySources {
  readonly configured: { readonly proxy?: string; readonly noProxy?: string };
  readonly environment: { readonly [name: string]: string | undefined };
}

/** The proxy on the way to this address, or null for the straight way. */
export function chooseProxy(
  target: URL,
  { configured, environment }: ProxySources,
): ProxyAddress | null {
  const read = (name: string) => environment[name.toLowerCase()] || environment[name];
  const variable = isSecure(target) ? "HTTPS_PROXY" : "HTTP_PROXY";
  const text = configured.proxy ?? read(variable);
  if (!text) return null;
  if (isExempt(target, configured.noProxy ?? read("NO_PROXY") ?? "")) return null;
  if (configured.proxy === undefined && isThisMachine(target)) return null;
  return parseProxy(text, configured.proxy === undefined ? variable : "proxy");
}

/** True for `https:` and `wss:`. */
export function isSecure({ protocol }: URL): boolean {
  return protocol === "https:" || protocol === "wss:";
}

/** The name or address without the brackets of IPv6. */
export function hostOf({ hostname }: URL): string {
  return hostname.replace(/^\[|\]$/g, "").toLowerCase();
}

/** The port, also where the address leaves it out. */
export function portOf(target: URL): number {
  return Number(target.port) || (isSecure(target) ? 443 : 80);
}

function parseProxy(text: string, source: string): ProxyAddress {
  const url = URL.parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`);
  if (!url || !/^https?:$/.test(url.protocol) || url.hostname === "") {
    // Not the text itself: it may hold a password.
    throw new Fault(
      "invalid",
      `Expected \`${source}\` to be the address of a proxy, such as http://proxy.example.com:3128, got something else. Correct it and start the agent again.`,
    );
  }
  const [user, password] = [url.username, url.password].map(decodeURIComponent);
  const [host, port] = [hostOf(url), portOf(url)];
  return {
    secure: isSecure(url),
    host,
    port,
    name: `${host}:${port}`,
    authorization: user ? `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}` : null,
  };
}

/** `*`, names with all names below them, addresses, networks (`10.0.0.0/8`), each with a port or without. */
function isExempt(target: URL, list: string): boolean {
  const [host, port] = [hostOf(target), portOf(target)];
  return list
    .toLowerCase()
    .split(/[\s,]+/)
    .filter(Boolean)
    .some((entry) => {
      if (entry === "*") return true;
      if (entry.includes("/")) return isInNetwork(host, entry);
      const [, name = "", only] = entry.match(/^\[?(.*?)\]?(?::(\d+))?$/) ?? [];
      if (isIP(entry)) return host === entry;
      if (only !== undefined && Number(only) !== port) return false;
      const domain = name.replace(/^\*?\./, "");
      return domain !== "" && (host === domain || host.endsWith(`.${domain}`));
    });
}

function isInNetwork(host: string, entry: string): boolean {
  const [network = "", bits = ""] = entry.split("/");
  const [family, size] = [familyOf(network), Number(bits)];
  if (isIP(host) === 0 || isIP(network) === 0) return false;
  if (!/^\d+$/.test(bits) || size > (family === "ipv4" ? 32 : 128)) return false;
  const list = new BlockList();
  list.addSubnet(network, size, family);
  return list.check(host, familyOf(host));
}

function isThisMachine(target: URL): boolean {
  const host = hostOf(target);
  return host === "localhost" || host.endsWith(".localhost") || isLoopback(host);
}

function isLoopback(host: string): boolean {
  return isInNetwork(host, "127.0.0.0/8") || host === "::1";
}

function familyOf(address: string): "ipv4" | "ipv6" {
  return isIP(address) === 6 ? "ipv6" : "ipv4";
}
