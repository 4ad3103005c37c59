/**
 * Makes (or completes) a local install: registry, store, agent and supervisor folder, on this machine.
 *
 * It may be cut short anywhere and run again: what was made once (password, port, store key, identity)
 * is kept, the rest is written anew, and `sandbox.json` comes last. No secret is in any event.
 */
import { randomBytes } from "node:crypto";
import { mkdir, rm, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { z } from "zod";
import { replaceFile } from "../../files/replace-file.ts";
import { canonicalJson, digestOfJson, type JsonObject } from "../../model/json.ts";
import { hashPassword } from "../../oci/password.ts";
import { OperationFailure, type PluginContext } from "../../plugin/plugin.ts";
import { requireGiven } from "../../plugin/serve.ts";
import type { DesiredProcess } from "../../protocol/supervisor-folder.ts";
import { createFolderStore } from "../../store/folder-store.ts";
import { storeKeys } from "../../store/store.ts";
import { findCapabilities } from "./capabilities.ts";
import { foldersOf, type Layout, layoutOf } from "./layout.ts";
import { pickRegistryPort } from "./registry-port.ts";
import { makeOnce } from "./secret-file.ts";

const registryUsername = "install";
const agentSlots = 4;
const registryStopGraceMs = 10_000;
/** The agent gives its executors ten seconds and then ends them, which takes a moment too. */
const agentStopGraceMs = 20_000;

const Account = z.object({ port: z.int().min(1).max(65_535), password: z.string().min(16) });
type Account = z.output<typeof Account>;

/** provision: everything, in an order in which each part finds what it needs. */
export async function provision(context: PluginContext): Promise<void> {
  const { request, log } = context;
  const { installsDirectory, programs, enrolment } = requireGiven(request.sandbox, "sandbox");
  const install = requireGiven(request.install, "install");
  const layout = layoutOf(installsDirectory, install.id);
  for (const folder of foldersOf(layout)) await mkdir(folder, { recursive: true, mode: 0o700 });
  const account = Account.parse(await makeOnce(layout.account, makeAccount));

  await configureRegistry(layout, account);
  const { capabilities, missing, toolFolders } = await findCapabilities(context.searchPath);
  const outputs = {
    capabilities,
    missing,
    registry_url: registryUrl(account),
    install_directory: layout.directory,
  };
  await fillStore(context, layout, outputs);
  log("store ready");

  const hasEnrolled = await exists(layout.agentIdentity);
  if (hasEnrolled) await rm(layout.enrolment, { force: true });
  else if (enrolment) await replaceFile(layout.enrolment, toText(enrolment));
  else throw new OperationFailure("Expected an enrolment code for the new agent, got none.");
  await configureAgent(
    layout,
    account,
    programs.executor,
    enrolment?.serverUrl ?? null,
    toolFolders,
  );
  log(
    hasEnrolled ? "the agent has its identity already" : "enrolment code placed for the new agent",
  );

  await askSupervisor(layout, programs, account, context.searchPath);
  await replaceFile(
    layout.complete,
    toText({ version: 1, installId: install.id, name: install.name }),
  );
  for (const [name, value] of Object.entries(outputs)) context.giveOutput(name, value);
  log(`sandbox complete in ${layout.directory}`);
}

async function makeAccount(): Promise<Account> {
  return { port: await pickRegistryPort(), password: randomBytes(24).toString("base64url") };
}

async function configureRegistry(layout: Layout, account: Account): Promise<void> {
  // A hash is salted: it is made once, so that the configuration does not change without a cause.
  const auth = await makeOnce(`${layout.registryConfig}.auth`, async () => ({
    type: "basic",
    username: registryUsername,
    passwordHash: await hashPassword(account.password, randomBytes),
  }));
  await replaceFile(
    layout.registryConfig,
    toText({
      directory: layout.registryData,
      listen: { host: "127.0.0.1", port: account.port },
      portFile: layout.registryPortFile,
      auth,
    }),
  );
}

async function fillStore(
  context: PluginContext,
  layout: Layout,
  outputs: JsonObject,
): Promise<void> {
  const { id, epoch } = context.request.job;
  const fence = { component: "sandbox", jobId: id, epoch };
  const store = await createFolderStore(layout.store);
  try {
    await store.openFence(fence);
    const entries = Object.entries(outputs).map(([name, value]) => [
      name,
      { sensitive: false, value },
    ]);
    await store.write(
      storeKeys.sandboxOutputs,
      new TextEncoder().encode(canonicalJson(Object.fromEntries(entries))),
      { expectedVersion: "any", fence },
    );
  } finally {
    await store.close();
  }
}

async function configureAgent(
  layout: Layout,
  account: Account,
  executor: readonly string[],
  serverUrl: string | null,
  toolFolders: readonly string[],
): Promise<void> {
  if (serverUrl === null && (await exists(layout.agentConfig))) return;
  await replaceFile(
    layout.agentConfig,
    toText({
      serverUrl,
      directory: layout.agent,
      enrolmentFile: layout.enrolment,
      place: {
        storeDirectory: layout.store,
        registry: {
          url: registryUrl(account),
          username: registryUsername,
          password: account.password,
        },
        supervisorDirectory: layout.supervisor,
        installsDirectory: null,
        programs: null,
      },
      executor,
      slots: agentSlots,
      sandbox: "auto",
      readOnlyPaths: [...new Set([...executor.flatMap(programFolder), ...toolFolders])],
      environment: {},
    }),
  );
}

async function askSupervisor(
  layout: Layout,
  programs: { agent: readonly string[]; registry: readonly string[] },
  account: Account,
  searchPath: string,
): Promise<void> {
  const environment = {
    PATH: `${dirname(process.execPath)}:${searchPath}`,
    HOME: layout.directory,
    LANG: "C.UTF-8",
  };
  const lasting = {
    version: 1 as const,
    directory: layout.directory,
    environment,
    restart: "always" as const,
  };
  await placeDesired(layout, "@registry", {
    ...lasting,
    command: [...programs.registry, layout.registryConfig],
    port: account.port,
    health: { tcp: true, intervalMs: 2000, timeoutMs: 2000, threshold: 5 },
    stopSignal: "SIGTERM",
    stopGraceMs: registryStopGraceMs,
  });
  await placeDesired(layout, "@agent", {
    ...lasting,
    command: [...programs.agent, layout.agentConfig],
    port: null,
    health: null,
    // SIGTERM would leave its executors running, for the next agent to find.
    stopSignal: "SIGINT",
    stopGraceMs: agentStopGraceMs,
  });
}

function placeDesired(
  layout: Layout,
  name: string,
  process: Omit<DesiredProcess, "revision">,
): Promise<void> {
  const desired: DesiredProcess = { ...process, revision: digestOfJson(process) };
  return replaceFile(`${layout.desired}/${name}.json`, toText(desired));
}

/** What a job must see to start: a bundle's folder; for loose sources, the checkout around `bin/`. */
function programFolder(part: string): string[] {
  if (!part.startsWith("/")) return [];
  return [part.endsWith(".ts") ? dirname(dirname(part)) : dirname(part)];
}

function registryUrl(account: Account): string {
  return `http://127.0.0.1:${account.port}`;
}

function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

function toText(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}
