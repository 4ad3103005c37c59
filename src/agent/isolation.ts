/**
 * What stands around an executor: bubblewrap where it works (own view of the files, own pid
 * namespace), otherwise a pid namespace alone, otherwise a plain process.
 *
 * Invariant: under bubblewrap a job sees the system's programs, its own folder and what the
 * configuration names; never the agent's folder, even where a named path contains it.
 */
import { execFile } from "node:child_process";
import { existsSync, lstatSync, readlinkSync, realpathSync } from "node:fs";
import { isAbsolute, join, sep } from "node:path";
import { promisify } from "node:util";
import { describeError, Fault } from "../model/fault.ts";
import { jobFiles } from "../protocol/job-folder.ts";

export const isolations = ["bubblewrap", "namespace", "plain"] as const;
export type Isolation = (typeof isolations)[number];

/** Written by bubblewrap itself: the executor's pid as the host sees it, then its exit code. */
export const bubblewrapFile = "bubblewrap.json";

const probeTimeoutMs = 5000;
const run = promisify(execFile);

const systemFolders = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
const systemFiles = [
  "/etc/ssl",
  "/etc/pki",
  "/etc/ca-certificates",
  "/etc/resolv.conf",
  "/etc/hosts",
  "/etc/passwd",
  "/etc/group",
  "/etc/nsswitch.conf",
  "/etc/alternatives",
  "/etc/ld.so.cache",
  "/etc/ld.so.conf",
  "/etc/ld.so.conf.d",
  "/etc/localtime",
];

const namespaceFlags = "--unshare-pid --as-pid-1 --unshare-ipc --unshare-uts --cap-drop ALL".split(
  " ",
);
const privateFolders = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/var/tmp"];

export interface Visible {
  readonly readOnlyPaths: readonly string[];
  readonly writablePaths: readonly string[];
  /** Hidden even where a visible path contains it. */
  readonly agentDirectory: string;
}

/** What stands in front of the executor's command line. */
export function isolatingCommand(
  isolation: Isolation,
  visible: Visible,
  folder: string,
  command: readonly string[],
): string[] {
  if (isolation === "bubblewrap") {
    return ["bwrap", ...bubblewrapArguments(visible, folder, command), "--"];
  }
  return isolation === "namespace" ? unshareCommand() : [];
}

/** The best that works here; `sandbox` may demand bubblewrap or do without it. */
export async function chooseIsolation(
  sandbox: "auto" | "bubblewrap" | "none",
  environment: { readonly PATH: string },
): Promise<{ isolation: Isolation; fallbackReason: string | null }> {
  const reasons: string[] = [];
  for (const isolation of isolations) {
    if (isolation === "bubblewrap" && sandbox === "none") continue;
    const reason = await probe(isolation, environment);
    if (reason === null) return { isolation, fallbackReason: reasons.join(" ") || null };
    reasons.push(`${isolation} does not work here: ${reason}`);
    if (sandbox === "bubblewrap") break;
  }
  throw new Fault(
    "unavailable",
    `Expected bubblewrap to run, as the configuration's \`sandbox\` demands, but ${reasons.join(" ")}. Install and permit it, or set \`sandbox\` to "auto".`,
  );
}

/** Null when a trivial program runs in it, otherwise why it does not. */
async function probe(isolation: Isolation, environment: { PATH: string }): Promise<string | null> {
  if (isolation === "plain") return null;
  const visible = { readOnlyPaths: [], writablePaths: [], agentDirectory: "/nonexistent" };
  const [program = "", ...before] =
    isolation === "bubblewrap"
      ? ["bwrap", ...systemArguments(visible), "--"]
      : isolatingCommand(isolation, visible, "/", []);
  try {
    await run(program, [...before, "/bin/sh", "-c", "exit 0"], {
      timeout: probeTimeoutMs,
      killSignal: "SIGKILL",
      env: environment,
    });
    return null;
  } catch (error) {
    const stderr = error instanceof Error && "stderr" in error ? String(error.stderr).trim() : "";
    return stderr.split("\n")[0] || describeError(error);
  }
}

function unshareCommand(): string[] {
  const mapping = process.getuid?.() === 0 ? [] : ["--user", "--map-current-user"];
  return ["unshare", ...mapping, "--pid", "--fork", "--kill-child", "--mount-proc", "--"];
}

/** No `--die-with-parent`: the executor outlives the agent. As pid 1, its end is the end of its tree. */
function bubblewrapArguments(
  visible: Visible,
  folder: string,
  command: readonly string[],
): string[] {
  // The launcher's own records are read-only inside, so that no job can point the agent at another pid.
  const records = [jobFiles.process, jobFiles.exit, bubblewrapFile].flatMap((name) => {
    const path = join(folder, name);
    return ["--ro-bind", path, path];
  });
  return [
    ...systemArguments({
      ...visible,
      readOnlyPaths: [...visible.readOnlyPaths, ...ownFiles(command)],
    }),
    "--bind",
    folder,
    folder,
    ...records,
    "--chdir",
    folder,
    "--json-status-fd",
    "3",
  ];
}

function systemArguments({ readOnlyPaths, writablePaths, agentDirectory }: Visible): string[] {
  const paths = [...readOnlyPaths, ...writablePaths];
  return [
    ...namespaceFlags,
    ...systemFolders.flatMap(systemFolder),
    ...systemFiles.flatMap((path) => ["--ro-bind-try", path, path]),
    ...privateFolders,
    ...readOnlyPaths.flatMap((path) => ["--ro-bind-try", path, path]),
    ...writablePaths.flatMap((path) => ["--bind-try", path, path]),
    ...(paths.some((path) => contains(path, agentDirectory)) ? ["--tmpfs", agentDirectory] : []),
  ];
}

function systemFolder(path: string): string[] {
  if (!existsSync(path)) return [];
  return lstatSync(path).isSymbolicLink()
    ? ["--symlink", readlinkSync(path), path]
    : ["--ro-bind", path, path];
}

/** Programs and scripts that the command line names outside the system's folders. */
function ownFiles(command: readonly string[]): string[] {
  return command.filter(
    (part) => isAbsolute(part) && !part.startsWith("/usr/") && existsSync(part) && part !== "/",
  );
}

function contains(path: string, inner: string): boolean {
  const outer = existsSync(path) ? realpathSync(path) : path;
  return `${inner}${sep}`.startsWith(outer.endsWith(sep) ? outer : `${outer}${sep}`);
}
