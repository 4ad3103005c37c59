/**
 * Numbers for Prometheus, in a registry of this HTTP server alone. What the database knows is asked at
 * each scrape, through indexes that hold unfinished rows only, so a scrape costs the same for ever.
 */
import { monitorEventLoopDelay } from "node:perf_hooks";
import { Gauge, Histogram, Registry } from "prom-client";
import type { ServerContext } from "../context.ts";

export interface Metrics {
  observe(request: { method: string; route: string; status: number; seconds: number }): void;
  readonly contentType: string;
  scrape(): Promise<string>;
  close(): void;
}

const durationBuckets = [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10];
const unfinishedStates = ["queued", "offered", "running", "unreachable"];
const nanosecondsPerSecond = 1e9;

/** The metrics of one HTTP server. */
export function createMetrics(context: ServerContext): Metrics {
  const registry = new Registry();
  const registers = [registry];
  const durations = new Histogram({
    name: "landfall_http_request_duration_seconds",
    help: "How long requests took, until the last byte.",
    labelNames: ["method", "route", "status"] as const,
    buckets: durationBuckets,
    registers,
  });
  addDatabaseGauges(context, registers);
  const loopDelay = addProcessGauges(registers);
  return {
    observe({ method, route, status, seconds }) {
      durations.observe({ method, route, status }, seconds);
    },
    contentType: registry.contentType,
    scrape: () => registry.metrics(),
    close() {
      loopDelay.disable();
      registry.clear();
    },
  };
}

function addDatabaseGauges({ database }: ServerContext, registers: Registry[]): void {
  new Gauge({
    name: "landfall_agents_connected",
    help: "Agents with an open connection, on any server.",
    labelNames: ["role"] as const,
    registers,
    async collect() {
      const rows = await database.query<{ role: string; count: number }>(
        "select role, count(connection) as count from agents where revoked_at is null group by role",
      );
      this.reset();
      for (const { role, count } of rows) this.set({ role }, count);
    },
  });
  new Gauge({
    name: "landfall_jobs",
    help: "Jobs that have not ended, by state.",
    labelNames: ["state"] as const,
    registers,
    async collect() {
      const rows = await database.query<{ state: string; count: number }>(
        `select state, count(*) as count from (
           select state from jobs where state = 'queued'
           union all select state from jobs where agent_id is not null) as unfinished
         group by state`,
      );
      for (const state of unfinishedStates) {
        this.set({ state }, rows.find((row) => row.state === state)?.count ?? 0);
      }
    },
  });
  new Gauge({
    name: "landfall_jobs_last_day",
    help: "Jobs made within the last 24 hours, by the state they are in now.",
    labelNames: ["state"] as const,
    registers,
    async collect() {
      const rows = await database.query<{ state: string; count: number }>(
        `select state, count(*) as count from jobs
         where created_at > now() - interval '24 hours' group by state`,
      );
      this.reset();
      for (const { state, count } of rows) this.set({ state }, count);
    },
  });
}

function addProcessGauges(registers: Registry[]): { disable(): unknown } {
  const delay = monitorEventLoopDelay({ resolution: 20 });
  delay.enable();
  new Gauge({
    name: "landfall_event_loop_delay_seconds",
    help: "Delay of the event loop since the last scrape.",
    labelNames: ["quantile"] as const,
    registers,
    collect() {
      for (const quantile of [50, 99]) {
        const value = delay.percentile(quantile) / nanosecondsPerSecond;
        this.set({ quantile: String(quantile / 100) }, value);
      }
      this.set({ quantile: "1" }, delay.max / nanosecondsPerSecond);
      delay.reset();
    },
  });
  new Gauge({
    name: "landfall_memory_bytes",
    help: "Resident memory of the server process.",
    registers,
    collect() {
      this.set(process.memoryUsage.rss());
    },
  });
  return delay;
}
