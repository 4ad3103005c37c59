/**
 * Executors of a component that are alive on this machine, whoever launched them: an agent that was
 * replaced, or whose folder is lost. They are found by the mark in their environment.
 *
 *   found ──ask (SIGTERM)──> asked ──grace──> killed, round after round ──none found──> proved gone
 *
 * Invariant: nothing is signalled that was not seen to carry the component's mark, to be in the session
 * of one that does, or to descend from one; and an empty round is the only proof. A stopped process
 * hears no SIGTERM, but dies of SIGKILL like any other. What cannot be seen from here (another user's
 * processes without root, another machine) is not proved: see docs/jobs.md.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Fault } from "../model/fault.ts";
import type { Others } from "./launcher.ts";
import {
  allProcesses,
  componentMark,
  jobMark,
  readMark,
  readNumbers,
  readStat,
  signal,
  type TreeProcess,
} from "./process-tree.ts";

const killWaitMs = 10_000;
const pollMs = 20;

interface Sweep {
  /** Carry the mark themselves. */
  readonly marked: readonly TreeProcess[];
  /** All that must be gone. */
  readonly tree: readonly TreeProcess[];
}

/** Ends them, and gives the names of their jobs; throws a `Fault` with `conflict` when some still live. */
export async function endOtherExecutors(
  component: string,
  { generation, graceMs }: Others,
): Promise<string[]> {
  const names = new Set<string>();
  const sweep = createSweep(component);
  const killAtMs = performance.now() + graceMs;
  for (let round = 0; ; round++) {
    const { marked, tree } = sweep();
    if (tree.length === 0) return [...names];
    for (const { pid } of marked) {
      const name = readMark(pid, jobMark);
      if (name === null) continue; // gone since
      refuseNewer(component, name, generation);
      names.add(name);
    }
    if (round === 0) for (const pid of executorsOf(marked)) signal(pid, "SIGTERM");
    const nowMs = performance.now();
    if (nowMs >= killAtMs) for (const { pid } of tree) signal(pid, "SIGKILL");
    if (nowMs >= killAtMs + killWaitMs) {
      const pids = tree.map(({ pid }) => pid).join(", ");
      throw new Fault(
        "conflict",
        `Expected every executor of ${component} on this machine to end before a newer one starts, but ${[...names].join(", ")} (processes ${pids}) still live ${killWaitMs / 1000} s after being killed. Look at what they wait for.`,
      );
    }
    await sleep(pollMs);
  }
}

/** A name ends with `.<generation>.<n>`. */
function refuseNewer(component: string, name: string, generation: number): void {
  const found = Number(name.split(".").at(-2));
  if (!(found > generation)) return;
  throw new Fault(
    "conflict",
    `Expected no executor of ${component} of a newer generation than ${generation}, got ${name}. This agent was replaced.`,
  );
}

/** Remembers what it has seen: a child whose marked parent has ended is still found. */
function createSweep(component: string): () => Sweep {
  const seen = new Map<number, string>();
  const sessions = new Map<number, string | null>();
  const own = readStat(process.pid)?.session;

  return () => {
    const all = allProcesses();
    const marked = all.filter(({ pid }) => readMark(pid, componentMark) === component);
    for (const { session } of marked) {
      if (session === own || sessions.has(session)) continue;
      sessions.set(session, readStat(session)?.startTime ?? null);
    }
    const isSeen = ({ pid, startTime }: TreeProcess) => seen.get(pid) === startTime;
    const isMember = ({ pid, session }: TreeProcess) =>
      pid !== session && isSameSession(session, sessions);
    for (const { pid, startTime } of [...marked, ...all.filter(isMember)]) seen.set(pid, startTime);
    addDescendants(all, seen);
    return { marked, tree: all.filter(isSeen) };
  };
}

/** A session's number is not given out again while a member lives; its leader is the one first seen, or gone. */
function isSameSession(session: number, known: ReadonlyMap<number, string | null>): boolean {
  if (!known.has(session)) return false;
  const leader = readStat(session);
  return leader === null || leader.startTime === known.get(session);
}

function addDescendants(all: readonly TreeProcess[], seen: Map<number, string>): void {
  const isNew = ({ pid, parentPid, startTime }: TreeProcess) =>
    seen.has(parentPid) && seen.get(pid) !== startTime;
  for (let found = all.filter(isNew); found.length > 0; found = all.filter(isNew)) {
    for (const { pid, startTime } of found) seen.set(pid, startTime);
  }
}

/** Pid 1 of the outermost namespace of its own, or what nothing marked has started. */
function executorsOf(marked: readonly TreeProcess[]): number[] {
  const depth = readNumbers(process.pid).length;
  const firsts = marked.filter(({ pid }) => {
    const numbers = readNumbers(pid);
    return numbers.length === depth + 1 && numbers.at(-1) === 1;
  });
  const roots = marked.filter(({ parentPid }) => !marked.some(({ pid }) => pid === parentPid));
  const isWrapped = (root: TreeProcess) =>
    firsts.some((first) => readMark(first.pid, jobMark) === readMark(root.pid, jobMark));
  return [...firsts, ...roots.filter((root) => !isWrapped(root))].map(({ pid }) => pid);
}
