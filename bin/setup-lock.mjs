/**
 * The lock that lets one set-up at a time write into node_modules: a file with a line for its holder and
 * one for each program that the holder started, each a pid and a start time.
 *
 * Invariants: the lock never exists without its holder in it; a dead holder's lock is taken over by one
 * of those who wait, after the programs that it left running were ended.
 */
import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { setTimeout as delay } from "node:timers/promises";

const waitMs = 10 * 60_000;
const pollMs = 200;

/** A lock on `file`; `helperPids` gives the programs that are running for its holder. */
export function createLock(file, helperPids) {
  let held = false;

  /** True once this process holds it, false when the holder did not end in time. */
  async function take(tellHolder) {
    const deadline = performance.now() + waitMs;
    let told = false;
    while (performance.now() < deadline) {
      if (tryTake()) return true;
      const text = read(file);
      const [holder, ...helpers] = parse(text);
      if (holder !== undefined && isAlive(holder)) {
        if (!told) tellHolder(holder.pid);
        told = true;
        await delay(pollMs);
      } else if (text !== null && (await takeOver(text, helpers))) {
        return true;
      }
    }
    return false;
  }

  /** Records the programs that run now. */
  function refresh() {
    if (!held) return;
    fs.writeFileSync(`${file}-${process.pid}`, content());
    fs.renameSync(`${file}-${process.pid}`, file);
  }

  function release() {
    if (!held) return;
    held = false;
    fs.rmSync(file, { force: true });
  }

  function tryTake() {
    const own = `${file}-${process.pid}`;
    fs.writeFileSync(own, content());
    try {
      fs.linkSync(own, file);
      held = true;
    } catch (error) {
      if (error.code !== "EEXIST") throw error;
    } finally {
      fs.rmSync(own, { force: true });
    }
    return held;
  }

  async function takeOver(text, helpers) {
    for (const helper of helpers) {
      if (isAlive(helper)) process.kill(helper.pid, "SIGKILL");
    }
    const aside = `${file}-${randomBytes(4).toString("hex")}`;
    try {
      fs.renameSync(file, aside);
    } catch (error) {
      if (error.code === "ENOENT") return false;
      throw error;
    }
    const isTheDeadOne = read(aside) === text;
    // Somebody was faster, and it is their lock that was moved: it goes back.
    if (!isTheDeadOne) linkUnlessThere(aside, file);
    fs.rmSync(aside, { force: true });
    if (!isTheDeadOne || !tryTake()) return false;
    // Whoever saw the same dead holder has moved this lock and put it back, or lost, by then.
    await delay(pollMs);
    held = parse(read(file))[0]?.pid === process.pid;
    return held;
  }

  function content() {
    const pids = [process.pid, ...helperPids()];
    return pids.map((pid) => `${pid} ${startTime(pid)}\n`).join("");
  }

  return { take, refresh, release };
}

function linkUnlessThere(source, target) {
  try {
    fs.linkSync(source, target);
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
  }
}

function parse(text) {
  return [...(text ?? "").matchAll(/^(\d+) (\S+)$/gm)].map(([, pid, start]) => ({
    pid: Number(pid),
    start,
  }));
}

function isAlive({ pid, start }) {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (error.code !== "EPERM") return false;
  }
  return start !== "gone" && startTime(pid) === start;
}

/** Tells a process from another that got its pid; only Linux says, and a zombie has ended. */
function startTime(pid) {
  if (process.platform !== "linux") return "unknown";
  const stat = read(`/proc/${pid}/stat`);
  if (stat === null) return "gone";
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return fields[0] === "Z" ? "gone" : fields[19];
}

function read(file) {
  try {
    return fs.readFileSync(file, "utf8");
  } catch {
    return null;
  }
}
