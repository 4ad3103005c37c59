/** Clocks that jump by hours, wherever: no job is lost, none is done again. */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { assertOnce } from "./chaos/assert-once.ts";
import { openScene, type Part, type Scene } from "./chaos/scene.ts";

const hourMs = 3_600_000;
const quietStory = ["queued", "offered", "running", "succeeded"];

test("clock jumps of hours at the server, at the agent or at the database: no token is refused, no job lost, each apply is done once", async (t) => {
  const clocks = await mkdtemp(join(tmpdir(), "lf-clocks-"));
  t.after(() => rm(clocks, { recursive: true, force: true }));
  const shifted = (name: string) => ({
    NODE_OPTIONS: `--import=${pathToFileURL(join(import.meta.dirname, "chaos/clock-shift.mjs"))}`,
    LANDFALL_CLOCK_FILE: join(clocks, name),
  });
  const environment = { vendor: shifted("vendor"), agents: shifted("agents") };
  const scene = await openScene(t, { environment });
  const jumps = [
    { vendor: 5, agents: -7 },
    { vendor: -7, agents: 5 },
  ];

  for (const [turn, hours] of jumps.entries()) {
    await scene.deploy(partsOf(turn));
    await scene.applying(`long_${turn}`);
    await writeFile(join(clocks, "vendor"), String(hours.vendor * hourMs));
    await writeFile(join(clocks, "agents"), String(hours.agents * hourMs));
    await scene.settled();

    for (const component of [`long_${turn}`, "after"]) {
      assert.deepEqual(await assertOnce(scene, component), quietStory, JSON.stringify(hours));
    }
  }
  await scene.deploy([{ name: "jumped", config: { sleep_ms: 6000, files: { new: "artifact" } } }]);
  await scene.applying("jumped");
  await jumpDatabaseClock(scene, "5 hours");
  await scene.settled();

  await assertOnce(scene, "jumped");
  assert.deepEqual(await scene.remains(), []);
});

/** A long component of this turn alone, and one that follows it with a new artifact each turn. */
function partsOf(turn: number): Part[] {
  const long = `long_${turn}`;
  return [
    { name: long, config: { sleep_ms: 1500, log_lines: 20 } },
    {
      name: "after",
      dependencies: [long],
      config: { files: { turn: String(turn) }, outputs: { turn: String(turn) } },
    },
  ];
}

/** What is stored of the future lies so much nearer: as if the machine's clock had jumped ahead. */
async function jumpDatabaseClock({ product }: Scene, by: string): Promise<void> {
  await product.database.query(
    `update jobs set lease_expires_at = lease_expires_at - $1::interval,
       not_before = not_before - $1::interval, start_by = start_by - $1::interval
     where outcome is null`,
    [by],
  );
  await product.database.query("update agents set seen_at = seen_at - $1::interval", [by]);
}
