/** The registry program's configuration file, parsed at the door. */
import { Fault } from "../model/fault.ts";
import { parsePasswordHash } from "./password.ts";

export type RegistryListen =
  | { readonly host: string; readonly port: number }
  | { readonly socket: string };

export type RegistryAuth =
  | { readonly type: "bearer"; readonly keysFile: string }
  | { readonly type: "basic"; readonly username: string; readonly passwordHash: string };

export interface RegistryConfig {
  /** The content store's folder. */
  readonly directory: string;
  readonly listen: RegistryListen;
  /** Written with `{ url, port }` once the registry listens. */
  readonly portFile: string | null;
  readonly auth: RegistryAuth;
  /** Exit when stdin closes. */
  readonly exitWithParent: boolean;
}

type Members = { readonly [name: string]: unknown };

/** Parses the text of a configuration file; a `Fault` says what is wrong with it. */
export function parseRegistryConfig(text: string): RegistryConfig {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new Fault("invalid", "Expected the registry's configuration in JSON.", { cause });
  }
  const config = members(value, "the configuration");
  return {
    directory: textOf(config, "directory"),
    listen: parseListen(members(config.listen, "`listen`")),
    portFile: config.portFile === undefined ? null : textOf(config, "portFile"),
    auth: parseAuth(members(config.auth, "`auth`")),
    exitWithParent: config.exitWithParent === true,
  };
}

function parseListen(listen: Members): RegistryListen {
  if (listen.socket !== undefined) return { socket: textOf(listen, "socket") };
  const { port } = listen;
  if (typeof port !== "number" || !Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new Fault("invalid", "Expected `listen.port` between 0 (any free port) and 65535.");
  }
  return { host: listen.host === undefined ? "127.0.0.1" : textOf(listen, "host"), port };
}

function parseAuth(auth: Members): RegistryAuth {
  if (auth.type === "bearer") return { type: "bearer", keysFile: textOf(auth, "keysFile") };
  if (auth.type === "basic") {
    const passwordHash = textOf(auth, "passwordHash");
    parsePasswordHash(passwordHash);
    return { type: "basic", username: textOf(auth, "username"), passwordHash };
  }
  throw new Fault("invalid", "Expected `auth.type` to be `bearer` or `basic`.");
}

function members(value: unknown, name: string): Members {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) return value as Members;
  throw new Fault("invalid", `Expected ${name} to be an object.`);
}

function textOf(from: Members, name: string): string {
  const value = from[name];
  if (typeof value === "string" && value !== "") return value;
  throw new Fault("invalid", `Expected \`${name}\` to be text that is not empty.`);
}
