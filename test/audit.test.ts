/** Everything that was done is told: jobs, artifacts, tokens, approvals, agents, refusals. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { EventView, JobView } from "../src/protocol/api.ts";
import { createPlace, startSystem, until } from "./system.ts";

test("every change of state, artifact copied, token made and refusal is an audit event", async (t) => {
  const place = await createPlace();
  const system = startSystem(place);
  t.after(async () => {
    await system.stop();
    await place.remove();
  });
  await system.ready();
  await fetch(`${system.url}/api/installs`, { headers: { authorization: "Bearer wrong" } });
  await fetch(`${system.url}/v2/guestbook/web/tags/list`, {
    headers: { authorization: "Bearer wrong" },
  });
  await fetch(`${system.url}/api/enrol`, {
    method: "POST",
    headers: { authorization: "Enrolment wrong", "content-type": "application/json" },
    body: JSON.stringify({ publicKey: "" }),
  });

  const { jobs } = await system.api<{ jobs: JobView[] }>("/api/jobs?limit=200");
  const events = await allEvents(system.api);
  const kindsOf = (id: string) =>
    events.filter(({ jobId }) => jobId === id).map(({ kind }) => kind);

  for (const job of jobs) {
    const kinds = kindsOf(job.id);
    for (const kind of ["job.queued", "job.offered", "job.running", "job.succeeded"]) {
      assert.equal(
        kinds.filter((each) => each === kind).length,
        1,
        `${job.operation} ${job.component}: ${kind}`,
      );
    }
    if (job.operation === "build") assert(kinds.includes("artifact.built"));
    if (job.operation === "build" || job.operation === "sync")
      assert(kinds.includes("token.signed"));
    if (job.operation === "plan") assert(kinds.includes("plan.approved"));
  }
  const copied = events.filter(({ kind }) => kind === "artifact.copied");
  assert(copied.length >= jobs.filter(({ operation }) => operation === "sync").length);
  assert(
    copied.every(({ data }) => typeof data.digest === "string" && typeof data.bytes === "number"),
  );
  const kinds = new Set(events.map(({ kind }) => kind));
  for (const kind of [
    "app.synced",
    "release.created",
    "install.created",
    "agent.enrolled",
    "agent.connected",
    "token.created",
    "enrolment_code.created",
    "keyset.created",
  ]) {
    assert(kinds.has(kind), kind);
  }
  await until(async () => {
    const refused = (await allEvents(system.api)).filter(({ kind }) => kind === "request.refused");
    return ["/api/installs", "/v2/"].every((route) =>
      refused.some(({ data }) => data.route === route),
    );
  }, "both refused tokens are events");
});

async function allEvents(api: <Answer>(path: string) => Promise<Answer>): Promise<EventView[]> {
  const all: EventView[] = [];
  for (let after: string | null = ""; after !== null; ) {
    const page: { events: EventView[]; next: string | null } = await api(
      `/api/events?limit=500${after ? `&after=${after}` : ""}`,
    );
    all.push(...page.events);
    after = page.next;
  }
  return all;
}
