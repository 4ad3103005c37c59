/**
 * One launched job, watched until the server has its end.
 *
 *   running ──outcome written, executor gone──────────────> ended ──outcome acknowledged──> removed
 *      │  └──cancelled, timed out or silent, proved gone──────^                                ^
 *      └────gone without an outcome──────────────────────> lost ──────loss acknowledged────────┤
 *   any ────the server forgets it──────────────────────────────────executor ended──────────────┘
 *
 * Invariant: exactly one outcome or one loss per epoch; the folder goes only when the server has it (or
 * wants none), the row in the journal goes first, and no process of the tree is left behind.
 */
import type { FSWatcher } from "node:fs";
import { basename } from "node:path";
import { describeError } from "../model/fault.ts";
import type { AgentFrame } from "../protocol/frames.ts";
import type { JobKey } from "../protocol/job-key.ts";
import {
  type Ending,
  nextStep,
  outcomeOf,
  silenceGraceMs,
  timeoutGraceMs,
  withReason,
} from "./ending.ts";
import { createEventOutbox } from "./event-outbox.ts";
import { watchFolder } from "./folder-watch.ts";
import { boundStderr, readHeartbeat, readLastWords, removeJobFolder } from "./job-files.ts";
import type { Journal, JournalJob } from "./journal.ts";
import { isDiskFull } from "./journal-file.ts";
import type { Found, Launcher } from "./launcher.ts";
import type { Logger } from "./log.ts";
import { isTooLong, look, type Silence } from "./silence.ts";

const pollMs = 200;
/** How long lines may delay the news of a loss. */
const lossDelayMs = 5000;
/** How long an executor may take to exit once its outcome is safe. */
const lingerMs = 5000;

/** A connection that the server has welcomed. */
export interface Link {
  /** The version that both sides speak on it. */
  readonly protocol: number;
  send(frame: AgentFrame): void;
  /** False while events wait for their turn: those of this job, or any where none is named. */
  hasRoom(key?: JobKey): boolean;
}

export interface JobPorts {
  readonly launcher: Launcher;
  readonly journal: Journal;
  readonly logger: Logger;
  /** Monotonic, the machine's own: it goes on while no agent runs. */
  readonly clock: () => number;
  readonly now: () => Date;
  readonly link: () => Link | null;
  /** A slot became free, or the job is gone. */
  readonly changed: () => void;
}

export type JobPhase = "running" | "ended" | "lost" | "removed";

export interface RunningJob {
  readonly record: JournalJob;
  readonly folder: string;
  phase(): JobPhase;
  /** True once only its news is of interest: it takes no slot and bars no newer job. */
  isOver(): boolean;
  /** Looks at the executor once, and begins to watch it. */
  start(): Promise<void>;
  /** The server wants its events after this number, on the connection that `link` gives now. */
  resume(acknowledged: number): void;
  acknowledge(acknowledged: number): void;
  disconnected(): void;
  cancel(graceMs: number): void;
  /** Waits until the executor of a job that is over is proved gone. */
  clear(): Promise<void>;
  /** Ends the executor and removes every trace but its epoch. */
  forget(): Promise<void>;
  /** Stops watching; the executor goes on. */
  leave(): Promise<void>;
}

/** Watches a job that is in the journal. */
export function createRunningJob(ports: JobPorts, record: JournalJob, folder: string): RunningJob {
  const { launcher, journal, clock } = ports;
  const { key } = record;
  const logger = ports.logger;
  const name = basename(folder);
  const outbox = createEventOutbox(journal.spoolOf(key), folder, (event) =>
    withReason(event, ending?.reason ?? null),
  );
  let phase: JobPhase = "running";
  let resumed = false;
  let ending: Ending | null = record.endReason && beginEnding(record.endReason, record.graceMs);
  let loss: { reason: string; atMs: number; sent: boolean } | null = null;
  let safeAtMs: number | null = null;
  let silence: Silence | null = null;
  let leaving = false;
  let forgetting = false;
  let watcher: FSWatcher | null = null;
  let wake: () => void = () => {};
  let woken = false;
  let loop: Promise<void> = Promise.resolve();

  function beginEnding(reason: Ending["reason"], graceMs: number): Ending {
    return { reason, killAtMs: clock() + graceMs, askedAtMs: null };
  }

  function wakeUp(): void {
    woken = true;
    wake();
  }

  function setEnding(reason: Ending["reason"], graceMs: number): void {
    ending = beginEnding(reason, graceMs);
    logger.info("ending an executor", { job: name, reason });
    journal.setEnding(key, reason, graceMs);
  }

  function move(next: JobPhase): void {
    phase = next;
    ports.changed();
  }

  /** Steers the executor while it lives, and settles the job once it does not. */
  async function watchExecutor(): Promise<void> {
    const found = await launcher.find(folder);
    if (found !== "running") return settle(found);
    await boundStderr(folder);
    const { outcomeRead, outcomeAcknowledged } = outbox.state();
    if (outcomeAcknowledged) {
      safeAtMs ??= clock();
      if (clock() - safeAtMs >= lingerMs) await launcher.end(folder);
    }
    if (outcomeRead) return;
    const { mark } = outbox.state();
    const sign = `${await readHeartbeat(folder)} ${mark.segment} ${mark.offset}`;
    silence = look(silence, sign, clock());
    if (!ending && clock() >= record.deadlineMs) setEnding("timed_out", timeoutGraceMs);
    if (!ending && isTooLong(silence, record.silenceMs)) setEnding("silent", silenceGraceMs);
    if (!ending) return;
    const step = nextStep(ending, clock());
    if (step === "end") await launcher.end(folder);
    if (step === "ask") {
      ending = { ...ending, askedAtMs: clock() };
      await launcher.ask(folder);
    }
  }

  async function settle(found: Exclude<Found, "running">): Promise<void> {
    await launcher.end(folder); // what the executor left behind, and the proof that nothing is
    while (await outbox.importNew());
    const { outcomeRead, corrupt } = outbox.state();
    if (outcomeRead) return move("ended");
    if (ending) {
      await outbox.finish(outcomeOf(ending.reason), ports.now());
      return move("ended");
    }
    if (corrupt !== null) return loseCorrupt(corrupt);
    const how = found === "gone" ? "vanished" : `exited with code ${found.exitCode}`;
    const words = await readLastWords(folder);
    lose(`The executor ${how} without an outcome.${words && ` Its last words: ${words}`}`);
  }

  function lose(reason: string): void {
    loss = { reason, atMs: clock(), sent: false };
    logger.warn("an executor was lost", { job: name, reason });
    move("lost");
  }

  function loseCorrupt(corrupt: string): void {
    lose(`The executor's events cannot be read: ${corrupt}.`);
  }

  /** Whatever the executor wrote goes to the outbox, connected or not. */
  async function importEvents(): Promise<void> {
    if (phase !== "running") return;
    if (await outbox.importNew()) woken = true;
    const { corrupt } = outbox.state();
    if (corrupt === null) return;
    await launcher.end(folder);
    loseCorrupt(corrupt);
  }

  /** Sends what is new; tells a loss once its lines are safe, or have had their time. */
  function report(): void {
    const link = ports.link();
    if (!link) return;
    if (resumed) {
      outbox.pump(link.protocol, (events) => {
        if (!link.hasRoom(key)) return false;
        link.send({ type: "events", ...key, events });
        return true;
      });
    }
    if (!loss || loss.sent) return;
    const waited = clock() - loss.atMs >= lossDelayMs;
    if (resumed && !outbox.state().drained && !waited) return;
    loss.sent = true;
    link.send({ type: "lost", ...key, reason: loss.reason });
  }

  async function remove(): Promise<void> {
    await launcher.end(folder);
    await journal.remove(key); // first: a row without a folder would be told as a loss after a crash
    await removeJobFolder(folder);
    move("removed");
  }

  async function step(): Promise<void> {
    if (forgetting) return remove();
    // Each by itself: what cannot be imported now, on a full disk, holds up neither watch nor report.
    await attempt(importEvents);
    if (phase === "running") await attempt(watchExecutor);
    report();
    if (phase === "ended" && outbox.state().outcomeAcknowledged) await remove();
  }

  /** A failure to look (a full disk, a process that cannot be killed yet) is tried again, never given up. */
  async function attempt(act: () => Promise<void>): Promise<void> {
    try {
      await act();
    } catch (error) {
      if (isDiskFull(error)) return; // told once, by the journal
      const reason = describeError(error);
      logger.error("watching a job failed; trying again", { job: name, reason });
    }
  }

  async function run(): Promise<void> {
    const isOver = () => leaving || phase === "removed";
    while (!isOver()) {
      woken = false;
      await attempt(step);
      if (!woken && !isOver()) await pause();
    }
    watcher?.close();
  }

  /** Until something happens in the folder or on the connection; the poll is the floor. */
  function pause(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, pollMs);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  return {
    record,
    folder,
    phase: () => phase,
    isOver: () => phase !== "running" || outbox.state().outcomeRead,
    async start() {
      await attempt(watchExecutor);
      watcher = watchFolder(folder, wakeUp);
      loop = run();
    },
    resume(acknowledged) {
      resumed = true;
      if (loss) loss.sent = false;
      outbox.resume(acknowledged);
      wakeUp();
    },
    acknowledge(acknowledged) {
      if (loss?.sent && acknowledged === 0) forgetting = true;
      outbox.acknowledge(acknowledged);
      wakeUp();
    },
    disconnected() {
      resumed = false;
      if (loss) loss.sent = false;
    },
    cancel(graceMs) {
      if (phase !== "running" || ending) return;
      setEnding("cancelled", graceMs);
      wakeUp();
    },
    async clear() {
      const deadline = clock() + lingerMs;
      while (clock() < deadline && (await launcher.find(folder)) === "running") {
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      await launcher.end(folder);
    },
    async forget() {
      forgetting = true;
      wakeUp();
      await loop;
    },
    async leave() {
      leaving = true;
      wakeUp();
      await loop;
    },
  };
}
