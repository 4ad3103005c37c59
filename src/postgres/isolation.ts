/**
 * Under which identity PostgreSQL runs: it refuses root.
 *
 *   none             an ordinary user runs it as itself
 *   user-namespace   root runs it in a user namespace in which root has another number: no copy, no chown
 *   spare-uid        root, where user namespaces are barred (a default Docker container): another uid owns the data
 *
 * Invariant: the program reaches its data only through its working directory, which is entered before
 * the identity changes. So the folders above (`/root`, another user's home) may be closed to it.
 */
import { type SpawnOptions, spawn } from "node:child_process";
import { readFile } from "node:fs/promises";

export type Isolation = "none" | "user-namespace" | "spare-uid";

/** `uid` is the number inside the namespace for `user-namespace`. */
export interface Identity {
  readonly isolation: Isolation;
  readonly uid: number;
}

export interface Finished {
  readonly ok: boolean;
  readonly output: string;
}

interface RunOptions {
  readonly directory: string;
  readonly timeoutMs: number;
}

/** Of no account, and in the range that Debian leaves to ordinary accounts. */
export const defaultSpareUid = 59_432;
const nobodyUid = 65_534;
const outputCharactersMax = 16_000;

/** The working directory under a name that needs no permission on the folders above it. */
export function workingDirectoryPath(directory: string): string {
  return process.platform === "linux" ? "/proc/self/cwd" : directory;
}

/** Who owns the data on disk under this identity. */
export function ownerUid(identity: Identity): number {
  return identity.isolation === "spare-uid" ? identity.uid : (process.getuid?.() ?? 0);
}

/** The same isolation with a uid that has a name: initdb looks its own up, and ends when there is none. */
export async function namedIdentity(identity: Identity): Promise<Identity> {
  const passwd = await readFile("/etc/passwd", "utf8").catch(() => "");
  const named = [...passwd.matchAll(/^[^:\n]+:[^:\n]*:(\d+):/gm)]
    .map(([, uid]) => Number(uid))
    .filter((uid) => uid !== 0);
  if (named.length === 0 || named.includes(identity.uid)) return identity;
  const uid = named.includes(nobodyUid) ? nobodyUid : (named[0] ?? nobodyUid);
  const isolation = identity.isolation === "none" ? "user-namespace" : identity.isolation;
  return { isolation, uid };
}

/** How `program` is spawned under an identity; its pid is the program's own, since `unshare` execs. */
export function commandUnder(
  identity: Identity,
  program: string,
  args: readonly string[],
  directory: string,
): { file: string; args: string[]; options: SpawnOptions } {
  const options: SpawnOptions = {
    cwd: directory,
    // Nothing of the caller's: PGDATA, PGOPTIONS and their like would change what runs.
    env: { PATH: "/usr/local/bin:/usr/bin:/bin", LC_ALL: "C", TZ: "UTC" },
  };
  const { isolation, uid } = identity;
  if (isolation === "none") return { file: program, args: [...args], options };
  if (isolation === "spare-uid") {
    return { file: program, args: [...args], options: { ...options, uid, gid: uid } };
  }
  const mapping = ["--user", `--map-user=${uid}`, `--map-group=${uid}`, "--"];
  return { file: "unshare", args: [...mapping, program, ...args], options };
}

/** Runs a program to its end; one that cannot be started, or that takes too long, is not ok. */
export function runUnder(
  identity: Identity,
  program: string,
  args: readonly string[],
  { directory, timeoutMs }: RunOptions,
): Promise<Finished> {
  const command = commandUnder(identity, program, args, directory);
  return new Promise((resolve) => {
    let output = "";
    const keep = (chunk: unknown) => {
      output = `${output}${chunk}`.slice(-outputCharactersMax);
    };
    const child = spawn(command.file, command.args, {
      ...command.options,
      stdio: ["ignore", "pipe", "pipe"],
    });
    // Not spawn's own `timeout`: that one keeps the process waiting when the program does not exist.
    const timer = setTimeout(() => child.kill("SIGKILL"), timeoutMs);
    child.stdout?.on("data", keep);
    child.stderr?.on("data", keep);
    child.once("error", (error) => {
      clearTimeout(timer);
      resolve({ ok: false, output: `${output}${error.message}` });
    });
    child.once("close", (code, signal) => {
      clearTimeout(timer);
      if (signal !== null) keep(`\nended by ${signal} (allowed were ${timeoutMs} ms)`);
      resolve({ ok: code === 0, output });
    });
  });
}
