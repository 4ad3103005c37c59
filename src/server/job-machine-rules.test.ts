/**
 * The job machine in SQL and the rules in `model/job-rules.ts` are the same machine: random steps of
 * right and wrong agents, of older and newer epochs, drive both, and after every step both agree.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import fc from "fast-check";
import { addAgent, addApp, addInstall, ask, makePast, newJob } from "../../test/job-rows.ts";
import { createServerContext, type TestServer } from "../../test/server-context.ts";
import type { AgentId, InstallId, JobId } from "../model/ids.ts";
import type { Epoch, OutcomeCode } from "../model/job.ts";
import { type JobRecord, type JobStep, stepJob } from "../model/job-rules.ts";
import {
  adoptJob,
  expireLeases,
  expireStarts,
  finishJob,
  loseJob,
  nackJob,
  offerJobs,
  queueJobs,
  renewLeases,
  requestCancel,
  startJob,
} from "./job-machine.ts";

const runs = 150;
const stepsMax = 24;
const agentsMax = 3;

let server: TestServer;
before(async () => {
  server = await createServerContext();
  await addApp(server.database);
});
after(() => server.close());

/** What happens, before it is known to whom: agents by number, epochs by their distance from the newest. */
interface Move {
  readonly type: JobStep["type"] | "replace";
  readonly agent: "holder" | number;
  readonly epoch: "same" | "older" | "newer" | "older generation" | "newer generation";
  readonly status: "succeeded" | "failed" | "cancelled";
  readonly code: OutcomeCode | null;
}

/** One job, as both machines know it, and the agents around it. */
interface World {
  readonly id: JobId;
  readonly install: InstallId | null;
  readonly agents: AgentId[];
  /** Which agents were replaced; the last one of an install is its own. */
  readonly revoked: Set<AgentId>;
  generation: number;
  job: JobRecord;
}

const move: fc.Arbitrary<Move> = fc.record({
  type: fc.oneof(
    { weight: 3, arbitrary: fc.constant<Move["type"]>("offer") },
    { weight: 2, arbitrary: fc.constantFrom<Move["type"]>("start", "finish", "lose") },
    {
      weight: 3,
      arbitrary: fc.constantFrom<Move["type"]>("nack", "renew", "silence", "cancel", "expire"),
    },
    { weight: 2, arbitrary: fc.constantFrom<Move["type"]>("adopt", "replace") },
  ),
  agent: fc.oneof(
    { weight: 5, arbitrary: fc.constant<Move["agent"]>("holder") },
    { weight: 2, arbitrary: fc.nat({ max: agentsMax - 1 }) },
  ),
  epoch: fc.oneof(
    { weight: 6, arbitrary: fc.constant<Move["epoch"]>("same") },
    {
      weight: 1,
      arbitrary: fc.constantFrom<Move["epoch"]>(
        "older",
        "newer",
        "older generation",
        "newer generation",
      ),
    },
  ),
  status: fc.constantFrom("succeeded", "failed", "failed", "failed", "cancelled"),
  code: fc.constantFrom("unavailable", "unavailable", "operation_failed", "lost", null),
});

const policy = fc.record({
  attempts: fc.integer({ min: 1, max: 4 }),
  on: fc.subarray<OutcomeCode>(["unavailable", "lost", "timed_out"]),
});

test("the job machine in SQL and the pure rules take and refuse the same steps", async () => {
  const taken = new Set<string>();
  const refused = new Set<string>();

  const moves = fc.array(move, { minLength: 4, maxLength: stepsMax, size: "max" });
  await fc.assert(
    fc.asyncProperty(fc.boolean(), policy, moves, async (shared, retry, story) => {
      const world = await createWorld(shared, retry);
      for (const each of story) {
        const step = toStep(world, each);
        if (!step) await replaceAgent(world);
        else if (await playStep(world, step)) taken.add(`${step.type} shared=${shared}`);
        else refused.add(step.type);
        assert.deepEqual(await readJob(world), world.job, JSON.stringify(step));
      }
    }),
    { numRuns: runs },
  );

  for (const type of "offer start nack lose renew finish silence cancel expire".split(" ")) {
    for (const shared of [true, false]) assert(taken.has(`${type} shared=${shared}`), type);
    assert(refused.has(type), type);
  }
  assert(taken.has("adopt shared=false") && !taken.has("adopt shared=true"));
});

async function createWorld(
  shared: boolean,
  retry: { attempts: number; on: OutcomeCode[] },
): Promise<World> {
  const { database } = server;
  const install = shared ? null : await addInstall(database);
  const agents = [await addAgent(database, install)];
  if (shared) while (agents.length < agentsMax) agents.push(await addAgent(database, null));
  await database.query("delete from jobs");
  const job = newJob(install, {
    startSeconds: 3600,
    retry: { ...retry, backoffSeconds: 0.5, backoffSecondsMax: 4 },
  });
  assert.deepEqual(await queueJobs(database, [job]), [job.id]);
  return {
    id: job.id,
    install,
    agents,
    revoked: new Set(),
    generation: 1,
    job: {
      state: "queued",
      epoch: { generation: 1, n: 0 },
      agent: null,
      cancelRequested: false,
      begun: false,
      losses: 0,
      retries: 0,
      attemptsMax: retry.attempts,
      retryOn: retry.on,
      shared,
      code: null,
    },
  };
}

/** Null when it is a person's replacement of the agent, which is no step of the job. */
function toStep(world: World, { type, agent: who, epoch: which, status, code }: Move) {
  const own = world.agents.at(-1);
  assert(own);
  const numbered = who === "holder" ? undefined : world.agents[who];
  const holder = (world.job.agent ?? own) as AgentId;
  const agent = numbered ?? (type === "offer" || type === "adopt" ? own : holder);
  const epoch = shift(world.job.epoch, which);
  const { generation } = world;
  switch (type) {
    case "replace":
      return null;
    case "offer":
      return { type, agent, generation };
    case "finish":
      return { type, agent, epoch, status, code };
    case "adopt":
      return { type, from: holder, agent, epoch };
    case "silence":
    case "cancel":
    case "expire":
      return { type };
    default:
      return { type, agent, epoch };
  }
}

function shift({ generation, n }: Epoch, which: Move["epoch"]): Epoch {
  if (which === "older") return { generation, n: n - 1 };
  if (which === "newer") return { generation, n: n + 1 };
  if (which === "older generation") return { generation: generation - 1, n };
  if (which === "newer generation") return { generation: generation + 1, n };
  return { generation, n };
}

/** The step in both machines; true when it was taken. What the pure rules leave to SQL is decided here. */
async function playStep(world: World, step: JobStep): Promise<boolean> {
  const isAllowed =
    (step.type !== "offer" || !world.revoked.has(step.agent as AgentId)) &&
    (step.type !== "adopt" ||
      (world.install !== null &&
        world.revoked.has(step.from as AgentId) &&
        !world.revoked.has(step.agent as AgentId)));
  const next = isAllowed ? stepJob(world.job, step) : null;
  const taken = await playInSql(world, step);
  assert.equal(taken, next !== null, `${JSON.stringify(step)} on ${JSON.stringify(world.job)}`);
  if (next) world.job = next;
  return taken;
}

async function playInSql({ id, install }: World, step: JobStep): Promise<boolean> {
  const { database } = server;
  const agent = "agent" in step ? (step.agent as AgentId) : ("" as AgentId);
  const key = { jobId: id, epoch: "epoch" in step ? step.epoch : { generation: 0, n: 0 } };
  switch (step.type) {
    case "offer":
      await makePast(database, "not_before", id);
      return (await offerJobs(database, ask(agent), install ?? "build", 1)).length > 0;
    case "start":
      return startJob(database, agent, key);
    case "nack":
      return nackJob(database, agent, key, "no slot");
    case "lose":
      return loseJob(database, agent, key, "killed");
    case "renew":
      return renew(agent, key);
    case "finish": {
      const { status, code } = step;
      return (await finishJob(database, agent, key, { status, ...(code && { code }) })) !== null;
    }
    case "silence":
      await makePast(database, "lease_expires_at", id);
      return (await expireLeases(database)).includes(id);
    case "cancel":
      return requestCancel(database, id);
    case "expire":
      await makePast(database, "start_by", id);
      return (await expireStarts(database)).includes(id);
    case "adopt":
      return adoptJob(database, agent, key);
  }
}

/** `renewLeases` tells nothing: whether it did anything is seen in the lease. */
async function renew(agent: AgentId, key: { jobId: JobId; epoch: Epoch }): Promise<boolean> {
  const lease = async () =>
    (
      await server.database.query<{ at: string | null }>(
        "select lease_expires_at::text as at from jobs where id = $1",
        [key.jobId],
      )
    )[0]?.at;
  const earlier = await lease();
  await renewLeases(server.database, agent, [key]);
  return (await lease()) !== earlier;
}

/** What `agents replace` does: the old key is revoked, the generation raised, a new agent enrolled. */
async function replaceAgent(world: World): Promise<void> {
  const { install, agents } = world;
  const own = agents.at(-1);
  if (!install || !own || agents.length >= agentsMax) return;
  world.revoked.add(own);
  world.generation += 1;
  await server.database.query("update agents set revoked_at = clock_timestamp() where id = $1", [
    own,
  ]);
  await server.database.query("update installs set generation = $2 where id = $1", [
    install,
    world.generation,
  ]);
  agents.push(await addAgent(server.database, install));
}

async function readJob({ id, job }: World): Promise<JobRecord> {
  const [row] = await server.database.query<
    Omit<JobRecord, "shared" | "epoch" | "retryOn"> & Epoch
  >(
    `select state, agent_id as agent, cancel_requested_at is not null as "cancelRequested",
            started_at is not null as begun, losses, retries, attempts_max as "attemptsMax",
            outcome ->> 'code' as code, generation, n
     from jobs where id = $1`,
    [id],
  );
  assert(row);
  const { generation, n, ...rest } = row;
  return { ...rest, epoch: { generation, n }, shared: job.shared, retryOn: job.retryOn };
}
