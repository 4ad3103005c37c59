/** The life of a component through the real executor, its plugins, both registries and the store. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { test } from "node:test";
import type { JobId } from "../model/ids.ts";
import { digestOf } from "../model/json.ts";
import { type JobRun, registryPassword, vendorToken, withTrial } from "./trial.fixture.ts";

test("a component is built, copied, planned, applied and destroyed", () =>
  withTrial(async (trial) => {
    const config = { outputs: { address: "here" }, sensitive_outputs: { key: "hidden-key" } };
    const component = { name: "c", type: "noop", config };

    const { artifact, built, synced, planned, applied } = await trial.deploy(component);

    assert.equal(built.exitCode, 0);
    assert(artifact.sizeBytes > 0);
    assert(synced.outcome.copied?.some(({ digest }) => digest === artifact.digest));
    assert.equal(planned.outcome.plan?.changes, true);
    assert.equal(applied.outcome.status, "succeeded", applied.told);
    assert.deepEqual(applied.outcome.outputs?.address, { sensitive: false, value: "here" });
    assert.equal(applied.outcome.outputs?.key?.sensitive, true);
    assert.match(applied.outcome.outputsHash ?? "", /^hmac:/);
    const destroyed = await trial.run({ operation: "destroy", component, artifact });
    assert.equal(destroyed.outcome.status, "succeeded", destroyed.told);
    const left = await trial.withStore((store) => store.list(""));
    assert.deepEqual(left, []);
  }));

test("a build of the same source is the same artifact, and a second copy moves nothing", () =>
  withTrial(async (trial) => {
    const component = { name: "c", type: "job", config: { command: "true" } };
    const source = await trial.upload({ "a.txt": "a", "b/c.txt": "c" });

    const builds = [
      await trial.run({ operation: "build", component, plugin: "job", install: null, source }),
      await trial.run({ operation: "build", component, plugin: "job", install: null, source }),
    ];
    const [first, second] = builds.map((each) => each.outcome.artifact);

    assert.deepEqual(first, second);
    assert(first);
    await trial.run({ operation: "sync", component, artifact: first });
    const again = await trial.run({ operation: "sync", component, artifact: first });
    assert.equal(again.outcome.bytesCopied, 0);
    assert.deepEqual(again.outcome.copied, []);
  }));

test("a sensitive output reaches another component and nothing that leaves the install", () =>
  withTrial(async (trial) => {
    const canary = "canary-d41d8cd98f00b204";
    const database = {
      name: "db",
      type: "job",
      config: {
        command: 'echo password="$SECRET" >> "$LANDFALL_OUTPUTS"; echo "done"',
        env_vars: { SECRET: canary },
        outputs: { password: { sensitive: true } },
      },
    };
    const made = await trial.deploy(database);
    assert.equal(made.applied.outcome.status, "succeeded", made.applied.told);
    const outputsHash = made.applied.outcome.outputsHash ?? "";
    const web = {
      name: "web",
      type: "job",
      config: {
        command: `echo "url: $DATABASE_URL"; echo "$DATABASE_URL" | base64; node -e 'console.error(JSON.stringify(process.env.DATABASE_URL)); console.error(Buffer.from(process.env.DATABASE_URL).toString("base64"))'; echo "address=$DATABASE_URL" >> "$LANDFALL_OUTPUTS"; exit 0`,
        env_vars: { DATABASE_URL: "db://u:{{ .nuon.components.db.outputs.password }}@h" },
        outputs: { address: { sensitive: false } },
      },
    };

    const used = await trial.deploy(web, { dependencies: { db: { outputsHash } } });

    const runs = [used.built, used.synced, used.planned, used.applied];
    assert.match(used.applied.told, /url: db:\/\/u:\*\*\*@h/);
    assert.match(used.planned.outcome.plan?.diff ?? "", /DATABASE_URL: db:\/\/u:\*\*\*@h/);
    const base64 = Buffer.from(canary).toString("base64").slice(0, 20);
    for (const { told } of runs) {
      for (const secret of [canary, base64, registryPassword, vendorToken]) {
        assert(!told.includes(secret), `${secret} in ${told}`);
      }
      assert(!Buffer.from(told.replace(/\s/g, ""), "base64").includes(canary));
    }
    // What holds a sensitive value is sensitive, although the component declared otherwise.
    assert.equal(used.applied.outcome.outputs?.address?.sensitive, true);
  }));

test("a secret that is replaced stays hidden in the diff that replaces it", () =>
  withTrial(async (trial) => {
    const { artifact } = await trial.deploy({ name: "c", type: "noop", config: {} });
    const config = { command: ["node"], env_vars: { KEY: "old-canary-value" } };
    const web = { name: "web", type: "process", config };
    const first = await trial.run({ component: web, plugin: "process", artifact });
    assert.equal(first.outcome.status, "succeeded", first.told);
    await trial.withStore(async (store) => {
      const fence = { component: "web", jobId: idOf(first), epoch: { generation: 1, n: 1 } };
      const options = { expectedVersion: "any" as const, fence };
      const [key = ""] = await store.list(`plan/${first.outcome.plan?.planDigest}`);
      const record = JSON.parse(Buffer.from((await store.read(key))?.value ?? []).toString());
      const sensitiveTexts = ["old-canary-value"];
      const intent = { config, sensitiveTexts, artifactDigest: artifact.digest };
      await store.write("state/web", Buffer.from(JSON.stringify(record.plan)), options);
      await store.write("intent/web", Buffer.from(JSON.stringify(intent)), options);
    });

    const changed = { ...web, config: { ...config, env_vars: { KEY: "new" } } };
    const { outcome, told } = await trial.run({ component: changed, plugin: "process", artifact });

    assert.match(outcome.plan?.diff ?? "", /~ env KEY: \*\*\* → new/);
    assert(!told.includes("old-canary-value"), told);
  }));

test("a state that an older try was refused is kept aside, and the next job tells of it", () =>
  withTrial(async (trial) => {
    const component = { name: "c", type: "noop", config: { outputs: { a: "1" } } };
    const { applied, artifact } = await trial.deploy(component);
    const old = { component: "c", jobId: idOf(applied), epoch: { generation: 1, n: 1 } };
    await trial.withStore(async (store) => {
      await store.openFence({ ...old, epoch: { generation: 1, n: 2 } });
      const late = store.write("state/c", Buffer.from('"late"'), {
        expectedVersion: "any",
        fence: old,
      });
      await assert.rejects(late, { code: "conflict" });
    });

    const { outcome } = await trial.run({ component, artifact });

    assert.equal(outcome.conflicts?.length, 1);
    const [key = ""] = outcome.conflicts ?? [];
    assert.match(key, /^conflicts\/state\/c\/job_\w+\.1\.1\//);
    const kept = await trial.withStore((store) => store.read(key));
    assert.equal(Buffer.from(kept?.value ?? []).toString(), '"late"');
  }));

test("an apply that was killed before it could tell its outcome is not done again: its next try tells it", () =>
  withTrial(async (trial) => {
    const ledger = join(trial.folder, "ledger");
    const outputs = { a: "1" };
    const config = { outputs, sensitive_outputs: { key: "hidden" }, ledger };
    const { applied, approved } = await trial.deploy({ name: "c", type: "noop", config });
    const begun = await readFile(ledger, "utf8");

    const again = { ...approved, operation: "apply" as const, jobId: idOf(applied) };
    const second = await trial.run(again, { n: 2 });

    assert.equal(second.outcome.status, "succeeded", second.told);
    assert.deepEqual(second.outcome, applied.outcome);
    assert.equal(await readFile(ledger, "utf8"), begun, "the plugin did not run again");
    const other = await trial.run({ ...approved, operation: "apply" });
    assert.equal(other.outcome.code, "stale_plan", "another job has no part in it");
  }));

test("an artifact registry out of reach is a failure worth another attempt", () =>
  withTrial(async (trial) => {
    const component = { name: "c", type: "noop", config: {} };
    const { artifact } = await trial.deploy(component);

    const registry = { url: "http://127.0.0.1:1", username: "install", password: "none" };
    const { outcome } = await trial.run(
      {
        component: { ...component, name: "other" },
        artifact: { ...artifact, digest: digestOf(Buffer.from("another")) },
      },
      { place: { ...trial.place, registry } },
    );

    assert.equal(outcome.code, "unavailable");
  }));

test("an apply of what was not approved, or of what has changed since, touches nothing", () =>
  withTrial(async (trial) => {
    const component = { name: "c", type: "noop", config: { outputs: { a: "1" } } };
    const { approved, artifact } = await trial.deploy(component);

    const again = await trial.run({ ...approved, operation: "apply" });
    const other = { ...component, config: { outputs: { a: "2" } } };
    const planned = await trial.run({ component: other, artifact });
    const { planDigest, approvalDigest } = planned.outcome.plan ?? assert.fail();
    const mixed = await trial.run({
      operation: "apply",
      component,
      artifact,
      approval: { planDigest, approvalDigest },
    });
    const forged = await trial.run({
      operation: "apply",
      component: other,
      artifact,
      approval: { planDigest, approvalDigest: artifact.digest },
    });

    assert.equal(again.outcome.code, "stale_plan", again.told);
    assert.equal(mixed.outcome.code, "stale_plan", mixed.told);
    assert.equal(forged.outcome.code, "stale_plan", forged.told);
    const fitting = await trial.run({
      operation: "apply",
      component: other,
      artifact,
      approval: { planDigest, approvalDigest },
    });
    assert.equal(fitting.outcome.status, "succeeded", fitting.told);
  }));

test("values that have changed since the job was made are not used", () =>
  withTrial(async (trial) => {
    const { artifact } = await trial.deploy({
      name: "c",
      type: "noop",
      config: { outputs: { a: "1" } },
    });
    const component = {
      name: "d",
      type: "noop",
      config: { outputs: { b: "{{ .nuon.components.c.outputs.a }}" } },
    };

    const stale = await trial.run({
      component,
      artifact,
      dependencies: { c: { outputsHash: "hmac:old" } },
    });
    const absent = await trial.run({ component, artifact });

    assert.equal(stale.outcome.code, "stale_values", stale.told);
    assert.equal(absent.outcome.code, "render_failed", absent.told);
  }));

test("an older try of a job is fenced off from the store", () =>
  withTrial(async (trial) => {
    const component = { name: "c", type: "noop", config: {} };
    const { artifact } = await trial.deploy(component);
    const planned = await trial.run({ component, artifact }, { n: 2 });
    assert.equal(planned.outcome.status, "succeeded");

    const late = await trial.run({ component, artifact, jobId: idOf(planned) }, { n: 1 });

    assert.equal(late.outcome.code, "fenced", late.told);
  }));

test("an artifact that the install's registry does not have is not looked for elsewhere", () =>
  withTrial(async (trial) => {
    const component = { name: "c", type: "noop", config: {} };
    const built = await trial.run({ operation: "build", component, install: null });
    const artifact = built.outcome.artifact ?? assert.fail(built.told);

    const planned = await trial.run({ component, artifact });

    assert.equal(planned.outcome.code, "bad_artifact", planned.told);
    assert.deepEqual(await readdir(join(trial.folder, "supervisor")), []);
  }));

test("a source whose bytes do not match its digest is not built", () =>
  withTrial(async (trial) => {
    const component = { name: "c", type: "job", config: { command: "true" } };
    const source = await trial.upload({ a: "1" });
    const wrong = { ...source, digest: `sha256:${"0".repeat(64)}` as const };

    const built = await trial.run({
      operation: "build",
      component,
      plugin: "job",
      install: null,
      source: wrong,
    });
    const cut = await trial.run({
      operation: "build",
      component,
      plugin: "job",
      install: null,
      source: { ...source, sizeBytes: source.sizeBytes - 1 },
    });

    assert.equal(built.outcome.code, "bad_artifact", built.told);
    assert.equal(cut.outcome.code, "bad_artifact", cut.told);
  }));

if (hasTerraform()) {
  test("a Terraform module keeps its state in the install's store and nowhere else", () =>
    withTrial(async (trial) => {
      const component = {
        name: "tf",
        type: "terraform_module",
        config: { vars: { secret: "terraform-canary-1" } },
      };
      const files = {
        "main.tf": `variable "secret" {}
          resource "terraform_data" "kept" { input = var.secret }
          output "id" { value = terraform_data.kept.id }
          output "secret" {
            value = var.secret
            sensitive = true
          }`,
      };

      const { planned, applied, artifact } = await trial.deploy(component, { files });

      assert.equal(applied.outcome.status, "succeeded", applied.told);
      assert.match(planned.outcome.plan?.diff ?? "", /terraform_data.kept will be created/);
      assert.equal(applied.outcome.outputs?.secret?.sensitive, true);
      const keys = await trial.withStore((store) => store.list("backend-state/"));
      assert.deepEqual(keys, ["backend-state/tf"]);
      const again = await trial.run({ component, plugin: component.type, artifact });
      assert.equal(again.outcome.plan?.changes, false, again.told);
      assert(!again.told.includes("terraform-canary-1"));
      const destroyed = await trial.run({
        operation: "destroy",
        component,
        plugin: component.type,
        artifact,
      });
      assert.equal(destroyed.outcome.status, "succeeded", destroyed.told);
      assert.deepEqual(await trial.withStore((store) => store.list("")), []);
    }));
}

function idOf({ folder }: JobRun): JobId {
  return basename(folder).split(".")[0] as JobId;
}

function hasTerraform(): boolean {
  try {
    execFileSync("/bin/sh", ["-c", "command -v terraform || command -v tofu"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}
