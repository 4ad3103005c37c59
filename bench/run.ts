/**
 * `npm run bench -- NAME` runs one measurement, `npm run bench` all of them. Each prints a table, then
 * one last line of JSON. An aim that is missed is reported as missed; the exit code says so too.
 */
import { benchAgents } from "./agents.ts";
import { benchDispatch } from "./dispatch.ts";
import { benchGrowth } from "./growth.ts";
import { readOptions } from "./options.ts";
import { type Bench, formatReport } from "./report.ts";
import { benchStart } from "./start.ts";
import { benchThroughput } from "./throughput.ts";

const benches: Readonly<Record<string, Bench>> = {
  agents: benchAgents,
  start: benchStart,
  dispatch: benchDispatch,
  throughput: benchThroughput,
  growth: benchGrowth,
};

const { names, options } = readOptions(process.argv.slice(2));
const unknown = names.find((name) => !Object.hasOwn(benches, name));
if (unknown) {
  process.stderr.write(
    `Expected one of ${Object.keys(benches).join(", ")}, got ${unknown}. Run \`npm run bench -- start\`.\n`,
  );
  process.exit(2);
}
let isMet = true;
for (const [name, bench] of Object.entries(benches)) {
  if (names.length > 0 && !names.includes(name)) continue;
  const report = await bench((line) => process.stderr.write(`${line}\n`), options);
  isMet &&= report.aims.every(({ ok }) => ok);
  process.stdout.write(formatReport(name, report));
}
process.exit(isMet ? 0 : 1);
