/**
 * The folders of local installs, and what they say: whether a sandbox is there, who supervises it, and
 * whether its processes run.
 */
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { ProcessRecord } from "../../protocol/job-folder.ts";
import { isAlive } from "../../protocol/process-identity.ts";
import {
  DesiredProcess,
  ProcessStatus,
  supervisorFolders,
  supervisorRecordFile,
} from "../../protocol/supervisor-folder.ts";

export const sandboxFile = "sandbox.json";
const fileBytesMax = 1024 * 1024;

/** What one look at an install's folder saw. */
export interface InstallFolder {
  readonly id: string;
  readonly provisioned: boolean;
  /** Its supervisor, if one is alive. */
  readonly supervisor: ProcessRecord | null;
}

/** The supervisor's folder of an install. */
export function supervisorDirectory(installs: string, id: string): string {
  return join(installs, id, "supervisor");
}

/** Looks at every install's folder; none when there is no folder for them yet. */
export async function lookAtInstalls(installs: string): Promise<InstallFolder[]> {
  const names = await readdir(installs).catch(() => []);
  const ids = names.filter((name) => name.startsWith("ins_")).sort();
  return Promise.all(
    ids.map(async (id) => {
      const [provisioned, record] = await Promise.all([
        exists(join(installs, id, sandboxFile)),
        readJson(join(supervisorDirectory(installs, id), supervisorRecordFile)),
      ]);
      const parsed = ProcessRecord.safeParse(record);
      const alive = parsed.success && isAlive(parsed.data);
      return { id, provisioned, supervisor: alive ? parsed.data : null };
    }),
  );
}

/** Names of components whose process shall run but does not (yet), each with the reason. */
export async function findUnready(installs: string, id: string): Promise<Map<string, string>> {
  const directory = supervisorDirectory(installs, id);
  const unready = new Map<string, string>();
  const files = await readdir(join(directory, supervisorFolders.desired)).catch(() => []);
  for (const file of files) {
    if (!file.endsWith(".json") || file.startsWith("@") || file.startsWith(".")) continue;
    const [desired, status] = await Promise.all([
      readJson(join(directory, supervisorFolders.desired, file)),
      readJson(join(directory, supervisorFolders.status, file)),
    ]);
    const reason = judgeProcess(
      DesiredProcess.safeParse(desired).data,
      ProcessStatus.safeParse(status).data,
    );
    if (reason !== null) unready.set(file.slice(0, -".json".length), reason);
  }
  return unready;
}

/** Why a process does not run as desired; null when it does, or when nobody desires it any more. */
export function judgeProcess(
  desired: DesiredProcess | undefined,
  status: ProcessStatus | undefined,
  alive: (record: ProcessRecord) => boolean = isAlive,
): string | null {
  if (!desired || desired.restart === "never") return null;
  if (!status || status.revision !== desired.revision) return "it was not started yet";
  if (status.state !== "healthy") return status.reason ?? `it is ${status.state}`;
  return status.process && alive(status.process) ? null : "it has died";
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

async function readJson(path: string): Promise<unknown> {
  try {
    if ((await stat(path)).size > fileBytesMax) return undefined;
    return JSON.parse(await readFile(path, "utf8"));
  } catch {
    // Absent, or removed between two looks: the next look tells.
    return undefined;
  }
}
