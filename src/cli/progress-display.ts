/**
 * Draws progress rows: on a terminal again and again in place, elsewhere one plain line per change.
 *
 * Invariant: whatever else is written while the rows stand goes above them (`say`), so that no line
 * is lost and none is drawn twice.
 */
import {
  advanceClock,
  describeChanges,
  describeRow,
  type ProgressRow,
  type RowClock,
  renderRows,
} from "./progress-rows.ts";
import type { Terminal } from "./terminal.ts";

export interface ProgressDisplay {
  show(rows: readonly ProgressRow[]): void;
  /** Writes lines above the rows. */
  say(text: string): void;
  /** Draws the rows a last time and leaves them standing. */
  finish(): void;
}

const frameMs = 100;

/** Where a display writes: standard output, or standard error when the output is for a program. */
export interface DisplayTarget {
  readonly interactive: boolean;
  readonly colours: boolean;
  write(text: string): void;
  width(): number;
  height(): number;
}

/** The target for a command; with `--json`, plain lines beside the output. */
export function displayTarget(terminal: Terminal, json: boolean): DisplayTarget {
  if (!json) return terminal;
  return { ...terminal, interactive: false, colours: false, write: terminal.note };
}

/** A display with no rows yet. */
export function createProgressDisplay(target: DisplayTarget, now: () => number): ProgressDisplay {
  return target.interactive ? createDrawnDisplay(target, now) : createPlainDisplay(target, now);
}

function createPlainDisplay(target: DisplayTarget, now: () => number): ProgressDisplay {
  let clock: RowClock = new Map();
  let told: ReadonlyMap<string, string> = new Map();
  return {
    show(rows) {
      clock = advanceClock(clock, rows, now());
      for (const line of describeChanges(told, rows, clock, now())) target.write(`${line}\n`);
      told = new Map(rows.map((row) => [row.name, describeRow(row)]));
    },
    say: (text) => target.write(`${text}\n`),
    finish() {},
  };
}

function createDrawnDisplay(target: DisplayTarget, now: () => number): ProgressDisplay {
  let clock: RowClock = new Map();
  let rows: readonly ProgressRow[] = [];
  let drawn = 0;
  let tick = 0;
  let timer: NodeJS.Timeout | null = null;
  const erase = () => (drawn === 0 ? "" : `\u001b[${drawn}A\r\u001b[0J`);
  const draw = (above = "") => {
    const lines = renderRows(rows, clock, {
      width: target.width(),
      height: target.height(),
      colours: target.colours,
      tick: tick++,
      nowMs: now(),
    });
    // One write per frame: a terminal shows it whole, so nothing flickers.
    target.write(erase() + above + lines.map((line) => `${line}\n`).join(""));
    drawn = lines.length;
  };
  return {
    show(next) {
      rows = next;
      clock = advanceClock(clock, rows, now());
      timer ??= setInterval(() => draw(), frameMs).unref();
      draw();
    },
    say(text) {
      if (drawn > 0) draw(`${text}\n`);
      else target.write(`${text}\n`);
    },
    finish() {
      if (timer) clearInterval(timer);
      timer = null;
      if (drawn > 0) draw();
      drawn = 0;
      rows = [];
    },
  };
}
