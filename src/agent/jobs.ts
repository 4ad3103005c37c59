/**
 * All jobs of this agent: restored from the journal, taken from offers, steered by the server's signed
 * frames. What an offer may do is decided in `offer.ts`; what becomes of a job in `running-job.ts`.
 *
 * Invariant: a job is in the journal before its executor starts, and a folder without a row in the
 * journal never runs.
 */
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import type { z } from "zod";
import { describeError, Fault, isFault } from "../model/fault.ts";
import type {
  Ack,
  Cancel,
  Checkpoint,
  Offer,
  Refused,
  RenewedCredentials,
  Welcome,
} from "../protocol/frames.ts";
import { jobFolderName, type Place } from "../protocol/job-folder.ts";
import type { JobKey } from "../protocol/job-key.ts";
import { makeJobFolder, removeJobFolder, replaceCredentials } from "./job-files.ts";
import { recordOf } from "./job-record.ts";
import type { JournalJob, Refusal } from "./journal.ts";
import { isDiskFull } from "./journal-file.ts";
import { narrowPlace, writableFolders } from "./narrow-place.ts";
import { decideOffer, type OfferDecision, type VerifiedOffer, verifyOffer } from "./offer.ts";
import { completeManifests, tellEnded } from "./recall.ts";
import { createRunningJob, type JobPorts, type RunningJob } from "./running-job.ts";
import type { HelloReport, Session } from "./session.ts";

/** How long an executor that another agent launched has to end when it is asked. */
const othersGraceMs = 5000;

export interface JobsOptions extends JobPorts {
  readonly directory: string;
  readonly slots: number;
  /** Of the program, for people. */
  readonly version?: string;
  readonly place: Place;
  readonly executor: readonly string[];
  /** PATH, LANG and what the configuration adds; HOME is each job's own. */
  readonly environment: { readonly [name: string]: string };
}

export interface Jobs {
  /** Finds again what an earlier agent launched; removes folders that were never begun. */
  restore(): Promise<void>;
  /** What the server must know when it greets: the free slots are those besides the journal's jobs. */
  report(): HelloReport;
  leases(): { jobs: JobKey[]; freeSlots: number };
  welcome(frame: z.output<typeof Welcome>): void;
  offer(frame: z.output<typeof Offer>, session: Session, serverNowMs: number): Promise<void>;
  cancel(frame: z.output<typeof Cancel>): void;
  renewCredentials(frame: z.output<typeof RenewedCredentials>): Promise<void>;
  acknowledge(frame: z.output<typeof Ack>): void;
  /** Tells a server that was restored from an older back-up all that ended here. */
  recall(): Promise<void>;
  disconnected(): void;
  /** Refuses every further offer. */
  stopLaunching(): void;
  /** Waits until no executor runs, at most this long, then ends those that do. */
  drain(waitMs: number): Promise<void>;
  /** Stops watching; executors go on. */
  leave(): Promise<void>;
}

/** The jobs of one agent folder. */
export function createJobs(options: JobsOptions): Jobs {
  const { launcher, journal, logger, clock } = options;
  const jobsDirectory = join(options.directory, "jobs");
  const jobs = new Map<string, RunningJob>();
  /** Decided, but not launched yet: they hold their slot and their component already. */
  const starting = new Map<string, JournalJob>();
  const launches = new Set<Promise<void>>();
  let launching = true;

  const nameOf = (key: JobKey) => jobFolderName(key.jobId, key.epoch);
  const running = () => [...jobs.values()].filter((job) => !job.isOver());
  const freeSlots = () =>
    launching ? Math.max(0, options.slots - running().length - starting.size) : 0;

  function watchJob(record: JournalJob): RunningJob {
    const name = nameOf(record.key);
    const changed = () => {
      if (job.phase() === "removed") jobs.delete(name);
      options.changed();
    };
    const job = createRunningJob({ ...options, changed }, record, join(jobsDirectory, name));
    jobs.set(name, job);
    return job;
  }

  /** Now, or once the launch that is under way has come to its end. */
  function withJob(name: string, act: (job: RunningJob) => void): boolean {
    const job = jobs.get(name);
    if (job) act(job);
    else if (starting.has(name)) {
      void Promise.allSettled(launches).then(() => {
        const launched = jobs.get(name);
        if (launched) act(launched);
      });
    } else return false;
    return true;
  }

  /** On a full disk the one before stays; an older place in the history serves too. */
  function keepCheckpoint(checkpoint: Checkpoint | undefined): void {
    if (checkpoint) void journal.setCheckpoint(checkpoint).catch(() => undefined);
  }

  function refuse(refusal: Refusal & { code: z.output<typeof Refused>["code"] }): void {
    journal.recordRefusal(refusal, options.now().toISOString());
    logger.warn("refused an offer", { ...refusal });
    options.link()?.send({ type: "refused", ...refusal });
  }

  function decide(verified: VerifiedOffer, agentId: string, serverNowMs: number): OfferDecision {
    return decideOffer(verified, {
      agentId,
      serverNowMs,
      newestEpoch: journal.newestEpoch(verified.key.jobId),
      jobs: [
        ...[...jobs.values()].map((job) => ({ ...job.record, over: job.isOver() })),
        ...[...starting.values()].map((record) => ({ ...record, over: false })),
      ],
      freeSlots: freeSlots(),
    });
  }

  /** The proof that no older executor of the job or its component can act, whoever launched it. */
  async function clearTheWay(
    { key, component }: JournalJob,
    clear: readonly JobKey[],
  ): Promise<void> {
    try {
      await Promise.all(clear.map((rival) => jobs.get(nameOf(rival))?.clear()));
      if (component === null) return;
      const ended = await launcher.endOthers(component, {
        generation: key.epoch.generation,
        graceMs: othersGraceMs,
      });
      if (ended.length > 0) logger.warn("ended older executors", { job: nameOf(key), ended });
    } catch (error) {
      throw new Fault("conflict", describeError(error), { cause: error });
    }
  }

  /** Nobody else starts this component from the proof until the executor runs. */
  async function beginExecutor(
    frame: z.output<typeof Offer>,
    session: Session,
    {
      record,
      clear,
      place,
      folder,
    }: { record: JournalJob; clear: readonly JobKey[]; place: Place; folder: string },
  ): Promise<void> {
    await clearTheWay(record, clear);
    const { manifest, grant, credentials } = frame;
    const { keys } = session.keyset;
    await removeJobFolder(folder);
    await makeJobFolder(folder, { manifest, grant, keys, place, credentials });
    await journal.add(record);
    try {
      const environment = { ...options.environment, HOME: join(folder, "work") };
      await launcher.launch(folder, {
        command: options.executor,
        environment,
        writableFolders: writableFolders(place),
        component: record.component,
      });
    } catch (error) {
      await launcher.end(folder);
      await journal.remove(record.key);
      await removeJobFolder(folder);
      throw error;
    }
  }

  /** Folder, journal, executor, watch: in this order, so that a crash in between leaves nothing running unknown. */
  async function launch(
    frame: z.output<typeof Offer>,
    session: Session,
    { record, clear, place }: { record: JournalJob; clear: readonly JobKey[]; place: Place },
  ): Promise<void> {
    const folder = join(jobsDirectory, nameOf(record.key));
    const begin = () => beginExecutor(frame, session, { record, clear, place, folder });
    await (record.component === null ? begin() : launcher.alone(record.component, begin));
    const job = watchJob(record);
    starting.delete(nameOf(record.key));
    const link = options.link();
    link?.send({ type: "accepted", ...record.key });
    if (link) job.resume(0);
    await job.start();
  }

  return {
    async restore() {
      await mkdir(jobsDirectory, { recursive: true, mode: 0o700 });
      const records = journal.jobs();
      const known = new Set(records.map(({ key }) => nameOf(key)));
      for (const name of await readdir(jobsDirectory)) {
        if (known.has(name)) continue;
        logger.warn("removing a job's folder that was never begun", { job: name });
        await launcher.end(join(jobsDirectory, name));
        await removeJobFolder(join(jobsDirectory, name));
      }
      await completeManifests(journal, jobsDirectory);
      const restored = records.map(watchJob);
      await Promise.all(restored.map((job) => job.start()));
      for (const job of restored) {
        logger.info("found a job again", { job: nameOf(job.record.key), phase: job.phase() });
      }
    },
    report() {
      const known = [
        ...[...jobs.values()].flatMap((job) => {
          const state = job.phase();
          return state === "running" || state === "ended" ? [{ ...job.record.key, state }] : [];
        }),
        ...[...starting.values()].map(({ key }) => ({ ...key, state: "running" as const })),
      ];
      // The server counts every job of the journal as one slot until it has its end.
      return {
        journal: known,
        freeSlots: Math.min(freeSlots(), Math.max(0, options.slots - known.length)),
        checkpoint: journal.checkpoint(),
        generation: journal.newestGeneration(),
        slots: options.slots,
        count: journal.nextHello(),
        ...(options.version === undefined ? {} : { version: options.version }),
      };
    },
    leases: () => ({
      jobs: [
        ...[...jobs.values()]
          .filter((job) => job.phase() !== "lost")
          .map(({ record }) => record.key),
        ...[...starting.values()].map(({ key }) => key),
      ],
      freeSlots: freeSlots(),
    }),
    welcome(frame) {
      keepCheckpoint(frame.checkpoint);
      for (const { acknowledged, ...key } of frame.keep)
        jobs.get(nameOf(key))?.resume(acknowledged);
      for (const key of frame.forget) {
        logger.info("the server forgets a job", { job: nameOf(key) });
        withJob(nameOf(key), (job) => void job.forget());
      }
    },
    async offer(frame, session, serverNowMs) {
      let verified: VerifiedOffer;
      try {
        verified = await verifyOffer(frame, session.findKey);
      } catch (error) {
        const code = isFault(error, "forbidden") ? "bad_signature" : "invalid";
        return refuse({ code, reason: describeError(error), job: null });
      }
      const { key } = verified;
      const decision = decide(verified, session.agentId, serverNowMs);
      if (decision.kind === "refuse") return refuse({ ...decision, job: key });
      if (decision.kind === "again") {
        // The launch under way answers by itself.
        if (!starting.has(nameOf(key))) options.link()?.send({ type: "accepted", ...key });
        return;
      }
      const record = recordOf(verified, frame.manifest, clock());
      starting.set(nameOf(key), record);
      logger.info("launching", { job: nameOf(key), operation: verified.manifest.operation });
      const place = narrowPlace(options.place, verified.manifest);
      const launched = launch(frame, session, { record, clear: decision.clear, place })
        .catch((error) => {
          refuse({ code: refusalCodeOf(error), reason: describeError(error), job: key });
        })
        .finally(() => {
          starting.delete(nameOf(key));
          launches.delete(launched);
        });
      launches.add(launched);
    },
    cancel(frame) {
      const { jobId, epoch } = frame;
      if (withJob(nameOf(frame), (job) => job.cancel(frame.graceSeconds * 1000))) return;
      const reason = "The agent was asked to cancel this job, but has no trace of it.";
      options.link()?.send({ type: "lost", jobId, epoch, reason });
    },
    async renewCredentials(frame) {
      const job = jobs.get(nameOf(frame));
      if (job?.phase() === "running") await replaceCredentials(job.folder, frame.credentials);
    },
    acknowledge(frame) {
      keepCheckpoint(frame.checkpoint);
      jobs.get(nameOf(frame))?.acknowledge(frame.acknowledged);
    },
    async recall() {
      const told = await tellEnded(journal, options.link);
      logger.info("told a restored server what ended here", { jobs: told });
    },
    disconnected() {
      for (const job of jobs.values()) job.disconnected();
    },
    stopLaunching() {
      launching = false;
    },
    async drain(waitMs) {
      const deadline = clock() + waitMs;
      await Promise.allSettled(launches);
      // The last outcomes need a moment more, where there is a server to tell them to.
      const untold = () => options.link() !== null && jobs.size > 0;
      while ((running().length > 0 || untold()) && clock() < deadline) {
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      await Promise.all(running().map((job) => launcher.end(job.folder)));
    },
    async leave() {
      await Promise.allSettled(launches);
      await Promise.all([...jobs.values()].map((job) => job.leave()));
    },
  };
}

/** Both an older executor that is still there and a full disk are a matter of time, and cost no attempt. */
function refusalCodeOf(error: unknown): z.output<typeof Refused>["code"] {
  if (isDiskFull(error)) return "no_slot";
  return isFault(error, "conflict") ? "older_epoch_alive" : "invalid";
}
