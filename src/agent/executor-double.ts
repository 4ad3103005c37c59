/**
 * An executor for the agent's own tests: a real program that reads its manifest (unverified) and does
 * what the component's configuration says. `hold`: goes on until `work/release` exists.
 */
import { spawn } from "node:child_process";
import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const folder = process.argv.at(-1) ?? "";
const [, payload = ""] = readFileSync(join(folder, "manifest.jws"), "utf8").split(".");
const manifest: {
  component: {
    config: {
      lines?: number;
      /** So many lines more once it is released, in segments of which the newest are kept. */
      flood?: number;
      hold?: boolean;
      crash?: boolean;
      stubborn?: boolean;
    };
  };
} = JSON.parse(Buffer.from(payload, "base64url").toString());
const { lines = 3, flood = 0, hold, crash, stubborn } = manifest.component.config;
const segmentBytes = 1024 * 1024;
const segmentsMax = 64;
let seq = 0;
let segment = 1;

writeFileSync(join(folder, "work", "pid"), String(process.pid));
process.on("SIGTERM", () => {
  if (stubborn) return;
  finish({ status: "cancelled", code: "cancelled" });
});
if (stubborn) {
  const loop = `: >"${folder}/work/grandchild"; trap "" TERM; while :; do sleep 0.05; done`;
  spawn("setsid", ["sh", "-c", loop], { stdio: "ignore", detached: true }).unref();
}
for (let line = 1; line <= lines; line++)
  write({ type: "log", stream: "stdout", line: `line ${line}` });
while ((hold || stubborn) && !existsSync(join(folder, "work", "release"))) await sleep(10);
if (crash) {
  appendFileSync(join(folder, "events.ndjson"), '{"seq":');
  process.stderr.write("boom\n");
  process.exit(9);
}
writeFlood();
write({ type: "log", stream: "stdout", line: "released" });
finish({ status: "succeeded" });

function finish(outcome: object): never {
  write({ type: "outcome", outcome });
  process.exit(0);
}

function writeFlood(): void {
  let text = "";
  for (let line = 1; line <= flood; line++) {
    text += lineOf({ type: "log", stream: "stdout", line: `flood ${line}` });
    if (text.length < segmentBytes && line < flood) continue;
    appendFileSync(segmentFile(), text);
    text = "";
    segment++;
    appendFileSync(segmentFile(), "");
    const oldest = segment - segmentsMax;
    if (oldest > 1) rmSync(join(folder, `events.${oldest}.ndjson`), { force: true });
  }
}

function write(event: object): void {
  appendFileSync(segmentFile(), lineOf(event));
}

function lineOf(event: object): string {
  return `${JSON.stringify({ seq: ++seq, at: new Date().toISOString(), ...event })}\n`;
}

function segmentFile(): string {
  return join(folder, segment === 1 ? "events.ndjson" : `events.${segment}.ndjson`);
}
