/** The status page in a real browser, where one is installed: it shows, follows, and runs nothing foreign. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import {
  createActiveInstall,
  insertDeployed,
  insertJob,
  type ListeningServer,
  releaseApp,
  startHttp,
  syncNoopApp,
} from "../../../../test/http-server.ts";
import type { JobId } from "../../../model/ids.ts";
import { drainAgent, pauseInstall } from "../../holds.ts";
import { appendEvents } from "../../log-chunks.ts";

const browserPath = [
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((path) => existsSync(path));
const skip = browserPath === undefined ? "no browser is installed" : false;
const evil = `<img src=x onerror="document.title='taken'">`;

let server: ListeningServer;
before(async () => {
  if (!skip) server = await startHttp();
});
after(() => server?.close());

test("the status page shows installs and a job's lines as they change, and never as HTML", {
  skip,
}, async () => {
  await syncNoopApp(server, "app", { first: [], second: ["first"] });
  await releaseApp(server, "app");
  const id = await createActiveInstall(server, "app", "acme", { capabilities: [], missing: {} });
  await insertDeployed(server, id, "first");
  const job = { component: "second", operation: "apply", state: "failed", message: evil };
  const jobId = (await insertJob(server, id, job)) as JobId;
  await appendEvents(server.context, { jobId, epoch: { generation: 1, n: 1 } }, [
    { seq: 1, at: "", type: "log", stream: "stdout", line: evil },
  ]);
  const browser = await chromium.launch({
    executablePath: browserPath ?? "",
    args: ["--no-sandbox"],
  });
  try {
    const page = await browser.newPage();
    const complaints: string[] = [];
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));

    await page.goto(server.url);
    await page.fill("#token", server.token);
    await page.click("button[type=submit]");
    await page.waitForSelector(".node.failed");
    await page.click("tr.job >> nth=0");
    await page.waitForSelector("#log-lines .stdout");
    const lines = await page.textContent("#log-lines");
    await server.database.query("update installs set name = 'renamed' where id = $1", [id]);
    server.context.wake.notify("live");
    await page.waitForSelector("h3:has-text('renamed')");

    assert.equal(lines, `${evil}\n`);
    assert.equal(await page.title(), "Landfall");
    assert.equal(await page.locator("path.edge").count(), 1);
    assert.deepEqual(complaints, []);
    await page.click("text=Sign out");
    assert.match(page.url(), /\/sign-in$/);
  } finally {
    await browser.close();
  }
});

test("the status page shows a paused install with its reason, and an agent that drains, and never as HTML", {
  skip,
}, async () => {
  await syncNoopApp(server, "held", { first: [], second: ["first"] });
  await releaseApp(server, "held");
  const id = await createActiveInstall(server, "held", "quiet", { capabilities: [], missing: {} });
  await insertDeployed(server, id, "first");
  await server.database.query(
    `insert into agents (id, role, install_id, public_key, connection, connected_at, version)
     values ('agt_held', 'install', $1, 'held', 'c', now(), '9.8.7')`,
    [id],
  );
  await drainAgent(server.context, "server", "quiet", "new disk");
  await pauseInstall(server.context, `token:${server.tokenId}`, "quiet", `their audit ${evil}`);
  const browser = await chromium.launch({
    executablePath: browserPath ?? "",
    args: ["--no-sandbox"],
  });
  try {
    const page = await browser.newPage();
    await page.goto(server.url);
    await page.fill("#token", server.token);
    await page.click("button[type=submit]");
    await page.waitForSelector(".install .hold");
    const pause = await page.textContent(".install .hold");
    const agents = await page.textContent("#agents");
    const title = await page.title();

    assert.match(pause ?? "", /^Paused: their audit <img .* by test, since /);
    assert.match(agents ?? "", /quiet.*connected · draining · 9\.8\.7/);
    assert.equal(await page.textContent(".install:has(.hold) .badge.tone-warn"), "paused");
    assert.equal(title, "Landfall");
  } finally {
    await browser.close();
  }
});
