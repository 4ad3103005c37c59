/** One try of one job: what leases, folders, executors and log chunks are named by. */
import { z } from "zod";
import { JobEvent } from "./events.ts";
import { EpochSchema, JobIdText } from "./json-schema.ts";

export const JobKey = z.object({ jobId: JobIdText, epoch: EpochSchema });
export type JobKey = z.output<typeof JobKey>;

/** A stretch of one job's events, in order, without a hole. */
export const EventsOfJob = JobKey.extend({ events: z.array(JobEvent).min(1).max(1000) });
