/**
 * Preloaded into a program (`NODE_OPTIONS=--import=…`): shifts its wall clock by the milliseconds that
 * the file in LANDFALL_CLOCK_FILE holds, whenever that changes. Monotonic clocks stay as they are.
 */
import { readFileSync } from "node:fs";

const RealDate = Date;
const file = process.env.LANDFALL_CLOCK_FILE ?? "";
let shiftMs = 0;

function look() {
  try {
    shiftMs = Number(readFileSync(file, "utf8")) || 0;
  } catch {
    // Not written yet.
  }
}

look();
setInterval(look, 50).unref();

globalThis.Date = class ShiftedDate extends RealDate {
  constructor(...parts) {
    if (parts.length === 0) super(RealDate.now() + shiftMs);
    else super(...parts);
  }

  static now() {
    return RealDate.now() + shiftMs;
  }
};
