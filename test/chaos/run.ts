/**
 * `npm run chaos -- --rounds N --seed S`: the whole product under fire, round after round.
 *
 *   --rounds N     how many rounds (default 3)
 *   --seed S       what is drawn by chance, drawn again (default: the time)
 *   --jobs N       the size of a round: about so many jobs of installs (default 200)
 *   --faults N     at most so many faults a round (default 10)
 *   --only A,B     only these kinds of faults; `none` for none; `tamper` breaks the rules on purpose
 *   --keep         leave the data folder also when all went well
 *
 * Prints a line a round; where something does not hold, what that is, the seed and the round's timeline.
 */
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { installNames, openArena } from "./arena.ts";
import { type FaultKind, faultKinds } from "./faults.ts";
import { playRound, type RoundResult } from "./round.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    seed: { type: "string", default: String(Date.now()) },
    jobs: { type: "string", default: "200" },
    faults: { type: "string", default: "10" },
    only: { type: "string" },
    keep: { type: "boolean", default: false },
  },
});
const rounds = Number(values.rounds);
const components = Math.max(1, Math.round(Number(values.jobs) / (2 * installNames.length)));
const kinds = chooseKinds(values.only);

const data = await realpath(await mkdtemp(join(tmpdir(), "lf-chaos-")));
console.log(`seed ${values.seed}, ${rounds} rounds of ${components} components, data in ${data}`);
const totals = { jobs: 0, faults: new Map<string, number>(), epochs: 0, played: 0 };
const product = await openArena(data);
let failed = false;
let stopped = false;
for (const name of ["SIGINT", "SIGTERM"] as const) process.on(name, () => (stopped = true));
try {
  for (let round = 1; round <= rounds && !failed && !stopped; round++) {
    const options = { seed: values.seed, round, components, kinds };
    const result = await playRound(product, { ...options, faultsMax: Number(values.faults) });
    report(round, result);
    failed = result.violations.length > 0;
  }
} catch (error) {
  failed = true;
  console.error(error);
} finally {
  await product.database.close();
  await product.stop();
}
const struck = [...totals.faults].map(([kind, count]) => `${kind} ${count}`).join(", ");
console.log(
  `${totals.played} rounds, ${totals.jobs} jobs, ${totals.epochs} epochs beyond the first; faults: ${struck}`,
);
if (failed) console.log(`seed ${values.seed}; the data is in ${data}`);
else if (!values.keep) await rm(data, { recursive: true, force: true });
process.exit(failed ? 1 : 0);

function chooseKinds(only: string | undefined): FaultKind[] {
  if (only === undefined) return faultKinds;
  const wanted = only === "none" ? [] : only.split(",");
  const known: readonly FaultKind[] = [...faultKinds, "tamper"];
  const unknown = wanted.filter((kind) => !known.some((one) => one === kind));
  if (unknown.length === 0) return known.filter((kind) => wanted.includes(kind));
  console.error(
    `Expected kinds of faults, got ${unknown.join(", ")}. There are ${faultKinds.join(", ")}.`,
  );
  process.exit(2);
}

function report(round: number, result: RoundResult): void {
  totals.played++;
  totals.jobs += result.jobs;
  totals.epochs += result.epochsBeyondFirst;
  for (const kind of result.faults) totals.faults.set(kind, (totals.faults.get(kind) ?? 0) + 1);
  const seconds = (result.ms / 1000).toFixed(1);
  console.log(
    `round ${round}: ${result.violations.length === 0 ? "ok" : "BROKEN"}, ${seconds} s, ${result.jobs} jobs, ${result.epochsBeyondFirst} epochs beyond the first, faults: ${result.faults.join(", ") || "none"}`,
  );
  if (result.violations.length === 0) return;
  for (const line of result.timeline.lines()) console.log(line);
  for (const violation of result.violations) console.log(`BROKEN: ${violation}`);
}
