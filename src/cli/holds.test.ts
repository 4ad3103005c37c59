/** The commands of holds and of `why`, whole: the real command line against a real server. */
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  createActiveInstall,
  insertJob,
  type ListeningServer,
  releaseApp,
  startHttp,
  syncNoopApp,
} from "../../test/http-server.ts";
import { until } from "../../test/system.ts";
import { createId } from "../model/ids.ts";
import { AgentView, InstallView, WhyAnswer } from "../protocol/api.ts";
import type { CliContext } from "./context.ts";
import { runProgram } from "./program.ts";
import { renderWhy } from "./why-tree.ts";

let server: ListeningServer;
let folder: string;
before(async () => {
  server = await startHttp();
  folder = await mkdtemp(join(tmpdir(), "landfall-holds-"));
  await writeFile(join(folder, "token"), server.token, { mode: 0o600 });
  await syncNoopApp(server, "app", { a: [], b: ["a"] });
  await releaseApp(server, "app");
});
after(async () => {
  await server.close();
  await rm(folder, { recursive: true });
});

test("an install is paused with a reason that list and show tell, and goes on", async () => {
  await makeInstall("held");

  const paused = await run("installs", "pause", "held", "--reason", "their audit");
  const list = await run("installs", "list");
  const show = await run("installs", "show", "held");
  const deploy = await run("deploy", "held");
  const remove = await run("installs", "delete", "held", "--yes", "--no-wait");
  const resumed = await run("installs", "resume", "held", "--json");

  assert.match(paused.out, /`held` is paused\..*landfall installs resume held/);
  assert.match(list.out, /held .*active, paused .*their audit/);
  assert.match(show.out, /paused by test .* ago: their audit/);
  assert.match(deploy.out, /Accepted, but `held` is paused \(their audit, by test\)/);
  assert.match(remove.out, /Accepted, but `held` is paused/);
  assert.equal(InstallView.parse(JSON.parse(resumed.out)).pause, null);
  assert.deepEqual([paused.code, deploy.code, resumed.code], [0, 0, 0]);
});

test("an install's limit of parallel jobs is set, shown and taken away", async () => {
  await makeInstall("narrow");

  const set = await run("installs", "limit", "narrow", "--jobs", "2");
  const show = await run("installs", "show", "narrow");
  const cleared = await run("installs", "limit", "narrow", "--jobs", "none", "--json");

  assert.match(set.out, /`narrow` runs at most 2 at once/);
  assert.match(show.out, /limit: at most 2/);
  assert.equal(InstallView.parse(JSON.parse(cleared.out)).jobsMax, null);
});

test("what an older try was refused to write is listed until a person has looked at it", async () => {
  const { id } = await makeInstall("fenced");
  const key = "conflicts/state/a/job_0.1.1/1";
  await server.database.query(
    "insert into conflicts (install_id, component, key) values ($1, 'a', $2)",
    [id, key],
  );

  const show = await run("installs", "show", "fenced");
  const list = await run("installs", "conflicts", "fenced");
  const dismissed = await run("installs", "conflicts", "fenced", "--dismiss", key);
  const again = await run("installs", "conflicts", "fenced", "--dismiss", key);

  assert.match(show.out, /conflicts: 1 values.*landfall installs conflicts fenced/);
  assert.match(list.out, /a +\S+.* conflicts\/state\/a/);
  assert.match(dismissed.out, /No conflicts/);
  assert.notEqual(again.code, 0);
  const events = await server.database.query<{ kind: string }>(
    "select kind from events where install_id = $1 and kind like 'store.%' order by id",
    [id],
  );
  assert.deepEqual(
    events.map(({ kind }) => kind),
    ["store.conflict", "store.conflict_dismissed"],
  );
});

test("an agent is drained until it holds nothing, with progress, and takes jobs again", async () => {
  const { id, agent } = await makeInstall("drained");
  const job = await insertJob(server, id, { component: "a", operation: "sync", state: "running" });
  await server.database.query("update jobs set agent_id = $2 where id = $1", [job, agent]);

  const now = await run("agents", "drain", "--install", "drained", "--reason", "new disk");
  const agents = await run("agents");
  const context = createContext();
  const waiting = runProgram(
    ["agents", "drain", agent, "--wait", "--json", ...connection()],
    context,
  );
  await until(() => context.err.join("").includes("holds 1 job"), "progress of the drain");
  await server.database.query(
    `update jobs set state = 'succeeded', agent_id = null, lease_expires_at = null,
       finished_at = now(), outcome = '{"status":"succeeded"}' where id = $1`,
    [job],
  );
  await waiting;
  const back = await run("agents", "undrain", agent);

  assert.match(now.out, /is draining\. It still holds 1 job/);
  assert.match(agents.out, /draining +1 .*new disk/);
  assert.deepEqual(AgentView.parse(JSON.parse(context.out.join(""))).jobs, 0);
  assert.match(back.out, /takes jobs/);
  assert.equal((await run("agents", "drain")).code, 2);
  assert.equal((await run("agents", "drain", agent, "--install", "drained")).code, 2);
});

test("replacing an agent asks first, says what it does, and prints the code and what to do with it", async () => {
  await makeInstall("swapped");

  const unasked = await run("agents", "replace", "swapped");
  const refused = await runWith({ answer: "other" }, "agents", "replace", "swapped");
  const done = await runWith({ answer: "swapped" }, "agents", "replace", "swapped");
  const again = await run("agents", "replace", "swapped", "--yes", "--json");

  assert.deepEqual([unasked.code, refused.code, done.code, again.code], [2, 4, 0, 0]);
  assert.match(unasked.err, /Expected `--yes`.*Nothing was changed/);
  for (const text of ["key is revoked", "adopted by the new agent", "may go on changing things"]) {
    assert(done.err.includes(text), text);
  }
  assert.match(done.out, /^lfe_[\w-]+\.[0-9a-f]{16}\n$/);
  assert.match(done.err, /landfall agents enrol --directory DIR --code CODE --server URL/);
  assert.notEqual(JSON.parse(again.out).code, done.out.trim());
});

test("a code is put into an agent's folder: the old identity is set aside, the journal stays", async () => {
  const agent = await mkdtemp(join(folder, "agent-"));
  const code = `lfe_abc.${"0".repeat(16)}`;
  const config = {
    serverUrl: "http://127.0.0.1:7080",
    directory: agent,
    enrolmentFile: join(agent, "code.json"),
  };
  await writeFile(join(agent, "config.json"), JSON.stringify(config));
  for (const name of ["identity.json", "journal.db", "enrolment-key.pem"]) {
    await writeFile(join(agent, name), name);
  }
  const enrol = (url: string, directory = agent) =>
    run("agents", "enrol", "--directory", directory, "--code", code, "--server", url);

  const elsewhere = await enrol("http://127.0.0.1:1");
  const nowhere = await enrol("http://127.0.0.1:7080", join(folder, "nowhere"));
  const untouched = await readFile(join(agent, "identity.json"), "utf8");
  const placed = await enrol("http://127.0.0.1:7080/");

  assert.deepEqual([elsewhere.code, nowhere.code, placed.code], [4, 4, 0]);
  assert.equal(untouched, "identity.json");
  const files = (await readdir(agent)).toSorted();
  assert.equal(files.length, 4, files.join(" "));
  assert.deepEqual([files[0], files[1], files[3]], ["code.json", "config.json", "journal.db"]);
  assert.match(files[2] ?? "", /^identity\.json\.replaced-/);
  assert.equal(JSON.parse(await readFile(join(agent, "code.json"), "utf8")).code, code);
});

test("why tells of a job, a component, an install and a deploy, as a tree and as JSON", async () => {
  const { id } = await makeInstall("stuck");
  const job = await insertJob(server, id, { component: "a", operation: "sync", state: "queued" });
  await run("installs", "pause", "stuck", "--reason", "their audit");

  const told = await run("why", job);
  const component = await run("why", "stuck/b");
  const install = await run("why", "stuck", "--json");
  const deploy = await run("why", "stuck", "--deploy");
  const unknown = await run("why", "stuck/none");

  assert.match(told.out, /^Sync of a in stuck waits in the queue: stuck was paused by test/);
  assert.match(told.out, /\n└ pause: stuck was paused by test .*: their audit\.\n/);
  assert.match(told.out, /What would help:\n {2}• `landfall installs resume stuck`/);
  assert.match(component.out, /\n├ pause: .*\n└ dependency: a is syncing\.\n {2}└ job: Sync of a/);
  assert.equal(WhyAnswer.parse(JSON.parse(install.out)).state, "paused");
  assert.match(deploy.out, /^Deploy 1 of stuck is under way: stuck was paused/);
  assert.deepEqual([told.code, unknown.code], [0, 4]);
  assert.match(unknown.err, /Expected a component of `stuck` \(`a`, `b`\)/);
  assert(!told.out.includes("\u001b"));
});

test("cancelling a job whose agent is away says that it ends when the agent is back", async () => {
  const { id } = await makeInstall("far");
  const away = await insertJob(server, id, {
    component: "a",
    operation: "sync",
    state: "unreachable",
  });
  const queued = await insertJob(server, id, {
    component: "b",
    operation: "sync",
    state: "queued",
  });
  await server.database.query("update jobs set manifest = 'x' where id = $1", [away]);

  const cancelled = await run("jobs", "cancel", away);
  const shown = await run("jobs", "show", away);

  assert.match(cancelled.out, /is to stop: its agent is away, and ends it when it is back/);
  assert.match(shown.out, /cancel +asked for at/);
  assert.notEqual(queued, away);
});

test("the tree is coloured on a terminal only, and shows the first cause", () => {
  const leaf = {
    subject: { kind: "component" as const, id: "acme/a" },
    wait: "dependency" as const,
    state: "failed",
    summary: "a failed: lost: Gone.",
    because: [],
    unblock: ["Try again."],
    since: null,
    firstCause: { jobId: "job_1", code: "lost", message: "Gone.", at: "2030-01-01T00:00:00Z" },
  };
  const why = {
    ...leaf,
    wait: null,
    state: "waiting",
    summary: "b waits: a failed: lost: Gone.",
    because: [leaf, leaf],
  };

  const plain = renderWhy(why, false);
  const coloured = renderWhy(why, true).join("\n");

  assert.deepEqual(plain.slice(1, 3), [
    "├ dependency: a failed: lost: Gone.",
    "└ dependency: a failed: lost: Gone.",
  ]);
  assert(plain.includes("First cause, at 2030-01-01T00:00:00Z: lost: Gone."));
  assert(plain.includes("  landfall logs job_1"));
  assert(coloured.includes("\u001b[33mb waits"));
});

async function makeInstall(name: string): Promise<{ id: string; agent: string }> {
  const id = await createActiveInstall(server, "app", name, { capabilities: [], missing: {} });
  const agent = createId("agt", new Date(), server.context.random);
  await server.database.query(
    `insert into agents (id, role, install_id, public_key, connection, connected_at, seen_at)
     values ($1, 'install', $2, $1, 'c', now(), now())`,
    [agent, id],
  );
  return { id, agent };
}

interface Said {
  readonly out: string;
  readonly err: string;
  readonly code: number;
}

function run(...args: string[]): Promise<Said> {
  return runWith({ answer: null }, ...args);
}

async function runWith(person: { answer: string | null }, ...args: string[]): Promise<Said> {
  const context = createContext(person.answer);
  const isLocal = args[1] === "enrol";
  await runProgram(isLocal ? args : [...args, ...connection()], context);
  return { out: context.out.join(""), err: context.err.join(""), code: context.code() };
}

function connection(): string[] {
  return ["--server", server.url, "--token-file", join(folder, "token")];
}

function createContext(answer: string | null = null) {
  const out: string[] = [];
  const err: string[] = [];
  let code = 0;
  const unused = () => {
    throw new Error("Not part of this test.");
  };
  const context: CliContext = {
    terminal: {
      interactive: false,
      colours: false,
      width: () => Number.POSITIVE_INFINITY,
      height: () => 24,
      write: (text) => void out.push(text),
      note: (text) => void err.push(text),
      ask: async () => answer,
    },
    cwd: folder,
    root: folder,
    version: "1.2.3",
    databaseUrl: undefined,
    environment: {},
    now: () => new Date(),
    preparePrograms: unused,
    runForeground: unused,
    onStop: () => () => {},
    exitWith(next) {
      code = next;
    },
  };
  return { ...context, out, err, code: () => code };
}
