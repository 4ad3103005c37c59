/**
 * Progress as people see it, one line per component: states in, lines out; pure.
 *
 * On a terminal the lines are drawn again and again in place (`renderRows`); elsewhere each change of
 * a row is one plain line (`describeChanges`), so that a log reads as a story.
 */
import type { BuildView, ComponentView, InstallView } from "../protocol/api.ts";
import { formatDuration } from "./duration.ts";
import { cut } from "./table.ts";
import { paint, type Tone } from "./terminal.ts";

export type RowMood = "waiting" | "busy" | "good" | "bad" | "off";

export interface ProgressRow {
  readonly name: string;
  readonly state: string;
  readonly mood: RowMood;
  /** Why it failed or is off, what it waits for. */
  readonly detail: string | null;
  /** Between 0 and 1 while a job tells how far it is. */
  readonly fraction: number | null;
}

const moodOfState: Readonly<Record<ComponentView["state"], RowMood>> = {
  disabled: "off",
  waiting: "waiting",
  building: "busy",
  syncing: "busy",
  planning: "busy",
  applying: "busy",
  active: "good",
  failed: "bad",
  destroying: "busy",
  removed: "good",
};

/** One row for the sandbox and one for every component of an install. */
export function rowsOfInstall(install: InstallView): ProgressRow[] {
  return [sandboxRow(install), ...install.components.map(componentRow)];
}

/** One row per build. */
export function rowsOfBuilds(builds: readonly BuildView[]): ProgressRow[] {
  return builds.map((build) => ({
    name: build.component,
    state:
      build.state === "running" ? "building" : build.state === "succeeded" ? "built" : "failed",
    mood: build.state === "running" ? "busy" : build.state === "succeeded" ? "good" : "bad",
    detail: build.state === "failed" ? `see \`landfall logs ${build.jobId}\`` : null,
    fraction: null,
  }));
}

function sandboxRow(install: InstallView): ProgressRow {
  const failed = install.reason !== null;
  const state = install.state === "active" ? "ready" : install.state;
  const busy = install.state === "provisioning" || install.state === "deleting";
  return {
    name: "sandbox",
    state: failed ? "failed" : state,
    mood: failed ? "bad" : busy ? "busy" : "good",
    detail: install.reason,
    fraction: null,
  };
}

function componentRow(component: ComponentView): ProgressRow {
  const { progress } = component;
  return {
    name: component.name,
    state: component.state,
    mood: moodOfState[component.state],
    detail: component.reason,
    fraction:
      progress?.total && progress.total > 0 ? Math.min(1, progress.done / progress.total) : null,
  };
}

/** When each row began and ended to work; carried from one view to the next. */
export type RowClock = ReadonlyMap<
  string,
  { readonly beganMs: number; readonly endedMs: number | null }
>;

/** The clock after these rows were seen: it runs for a row while it is busy. */
export function advanceClock(
  clock: RowClock,
  rows: readonly ProgressRow[],
  nowMs: number,
): RowClock {
  const next = new Map(clock);
  for (const row of rows) {
    const times = next.get(row.name);
    if (row.mood === "busy" && (!times || times.endedMs !== null)) {
      next.set(row.name, { beganMs: nowMs, endedMs: null });
    } else if (row.mood !== "busy" && row.mood !== "waiting" && times?.endedMs === null) {
      next.set(row.name, { ...times, endedMs: nowMs });
    }
  }
  return next;
}

const spinner = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"] as const;
const barWidth = 12;
const marks: Readonly<Record<RowMood, string>> = {
  waiting: "·",
  busy: "",
  good: "✔",
  bad: "✘",
  off: "–",
};
const toneOfMood: Readonly<Record<RowMood, Tone>> = {
  waiting: "dim",
  busy: "busy",
  good: "good",
  bad: "bad",
  off: "dim",
};

export interface DrawSettings {
  readonly width: number;
  readonly height: number;
  readonly colours: boolean;
  /** Rises with every drawing; turns the spinner. */
  readonly tick: number;
  readonly nowMs: number;
}

/** The lines to draw, none wider than the terminal and no more than it has rows. */
export function renderRows(
  rows: readonly ProgressRow[],
  clock: RowClock,
  settings: DrawSettings,
): string[] {
  const linesMax = Math.max(1, settings.height - 2);
  const shown = rows.length <= linesMax ? rows : rows.slice(0, linesMax - 1);
  const nameWidth = Math.max(0, ...rows.map((row) => row.name.length));
  const stateWidth = Math.max(0, ...rows.map((row) => row.state.length));
  const lines = shown.map((row) => {
    const mark =
      row.mood === "busy" ? (spinner[settings.tick % spinner.length] ?? "") : marks[row.mood];
    const head = `${row.name.padEnd(nameWidth)}  ${row.state.padEnd(stateWidth)}`;
    const rest = [rowTime(row, clock, settings.nowMs), bar(row.fraction), row.detail ?? ""];
    const text = `${head}  ${rest.filter((part) => part !== "").join("  ")}`.trimEnd();
    const tone = toneOfMood[row.mood];
    return `${paint(settings.colours, tone, mark)} ${paint(settings.colours, tone === "dim" ? "dim" : "plain", cut(text, settings.width - 3))}`;
  });
  const hidden = rows.length - shown.length;
  return hidden > 0 ? [...lines, `  … and ${hidden} more`] : lines;
}

/** What a plain line says of a row. What it waits for changes too often to be worth a line each. */
export function describeRow(row: ProgressRow): string {
  return row.detail === null || row.mood === "waiting" ? row.state : `${row.state}: ${row.detail}`;
}

/** Plain lines for rows that differ from what was told before. */
export function describeChanges(
  told: ReadonlyMap<string, string>,
  rows: readonly ProgressRow[],
  clock: RowClock,
  nowMs: number,
): string[] {
  const nameWidth = Math.max(0, ...rows.map((row) => row.name.length));
  return rows
    .filter((row) => told.get(row.name) !== describeRow(row))
    .map((row) => {
      const time = row.mood === "good" || row.mood === "bad" ? rowTime(row, clock, nowMs) : "";
      return `${row.name.padEnd(nameWidth)}  ${describeRow(row)}${time && ` (${time})`}`;
    });
}

function rowTime(row: ProgressRow, clock: RowClock, nowMs: number): string {
  const times = clock.get(row.name);
  if (!times || row.mood === "waiting" || row.mood === "off") return "";
  return formatDuration((times.endedMs ?? nowMs) - times.beganMs);
}

function bar(fraction: number | null): string {
  if (fraction === null) return "";
  const full = Math.round(fraction * barWidth);
  return `${"█".repeat(full)}${"░".repeat(barWidth - full)} ${Math.round(fraction * 100)}%`;
}
