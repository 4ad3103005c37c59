/**
 * Entries and counters in one file of JSON lines: whatever happened, in order. Each line is flushed
 * before anyone hears that it was kept; a line that was cut off by a crash is dropped at the next start.
 */
import {
  closeSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";

const entriesMax = 10_000;

/** Opens the file in this folder and replays it. */
export function openStore(directory) {
  mkdirSync(directory, { recursive: true });
  const path = join(directory, "guestbook.jsonl");
  const entries = new Map();
  const counters = new Map();
  let schema = 0;

  const replay = {
    entry: (line) => entries.set(line.entry.id, line.entry),
    counter: (line) => counters.set(line.counter, line.value),
    schema: (line) => {
      schema = line.schema;
    },
  };

  const file = openSync(path, "a+", 0o600);
  const kept = readWholeLines(path);
  ftruncateSync(file, kept.bytes);
  for (const line of kept.lines) apply(JSON.parse(line));

  function apply(line) {
    for (const kind of Object.keys(replay)) if (kind in line) replay[kind](line);
  }

  function write(line) {
    writeSync(file, `${JSON.stringify(line)}\n`);
    fsyncSync(file);
    apply(line);
  }

  function add(entry) {
    if (entries.size >= entriesMax) {
      throw Object.assign(new Error("the book is full"), { status: 507 });
    }
    write({ entry });
    return entry;
  }

  return {
    count: () => entries.size,
    newest: (limit) => ({
      schema,
      total: entries.size,
      entries: [...entries.values()].slice(-limit).reverse(),
    }),
    add,
    addOnce: (entry) => entries.get(entry.id) ?? add(entry),
    raiseSchema(version) {
      if (version > schema) write({ schema: version });
      return { version: schema };
    },
    counter: (name) => counters.get(name) ?? 0,
    increase(name) {
      write({ counter: name, value: (counters.get(name) ?? 0) + 1 });
      return counters.get(name);
    },
    close: () => closeSync(file),
  };
}

function readWholeLines(path) {
  const bytes = readFileSync(path);
  const end = bytes.lastIndexOf(0x0a) + 1;
  const lines = bytes
    .subarray(0, end)
    .toString("utf8")
    .split("\n")
    .filter((line) => line !== "");
  return { bytes: end, lines };
}
