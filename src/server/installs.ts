/**
 * What people ask of installs: create, deploy, delete. Each changes what is desired, in one
 * transaction, and leaves the rest to reconcile; of a paused install too, where it waits for the resume.
 */

import type { AppConfig } from "../model/app-config.ts";
import { Fault } from "../model/fault.ts";
import { createId, type InstallId } from "../model/ids.ts";
import type { ServerContext } from "./context.ts";
import type { Sql } from "./database.ts";

/** Sandboxes that this version can make. */
const sandboxTypes = ["local"];

/** Creates an install of the app's newest release; its sandbox is provisioned by itself. */
export async function createInstall(
  context: ServerContext,
  actor: string,
  request: { app: string; name: string; inputs: Readonly<Record<string, string>> },
): Promise<InstallId> {
  const id = createId("ins", context.now(), context.random);
  await context.database.transaction(actor, async (sql) => {
    const app = await findApp(sql, request.app);
    const inputs = checkInputs(app.config, request.inputs);
    if (!sandboxTypes.includes(app.config.sandbox.type)) {
      throw new Fault(
        "invalid",
        `Expected a sandbox of type \`local\`, got \`${app.config.sandbox.type}\`: this version can make no other. ` +
          "Set `type` in the app's sandbox.toml.",
      );
    }
    const rows = await sql.query(
      `insert into installs (id, app_id, name, sandbox_type, inputs, release_id)
       values ($1, $2, $3, $4, $5, (select id from releases where app_id = $2 order by number desc limit 1))
       on conflict (name) where state <> 'deleted' do nothing returning id`,
      [id, app.id, request.name, app.config.sandbox.type, JSON.stringify(inputs)],
    );
    if (rows.length === 0) {
      throw new Fault(
        "conflict",
        `Expected a new name, but there is an install called \`${request.name}\`.`,
      );
    }
  });
  wakeReconcile(context);
  return id;
}

/** Moves an install to a release (the newest when none is named), and tries again what had failed. */
export async function deployInstall(
  context: ServerContext,
  actor: string,
  name: string,
  releaseNumber: number | null,
): Promise<InstallId> {
  const id = await context.database.transaction(actor, async (sql) => {
    const install = await lockInstall(sql, name);
    if (install.state === "deleting") {
      throw new Fault(
        "conflict",
        `Expected an install that stays, but \`${name}\` is being deleted.`,
      );
    }
    const [release] = await sql.query<{ id: string }>(
      `select id from releases where app_id = $1 and ($2::int is null or number = $2)
       order by number desc limit 1`,
      [install.app_id, releaseNumber],
    );
    if (!release) {
      const what = releaseNumber === null ? "a release" : `release ${releaseNumber}`;
      throw new Fault(
        "not_found",
        `Expected ${what} of the app, but there is none. Run \`landfall sync\` first.`,
      );
    }
    await sql.query(
      `update installs set release_id = $2, deploy = deploy + 1, reconcile_due_at = clock_timestamp()
       where id = $1`,
      [install.id, release.id],
    );
    return install.id;
  });
  wakeReconcile(context);
  return id;
}

/** Removes an install: every component, dependents first, then the sandbox. Asking again tries again. */
export async function deleteInstall(
  context: ServerContext,
  actor: string,
  name: string,
): Promise<InstallId> {
  const id = await context.database.transaction(actor, async (sql) => {
    const install = await lockInstall(sql, name);
    await sql.query(
      `update installs set state = 'deleting', deploy = deploy + 1, reconcile_due_at = clock_timestamp()
       where id = $1`,
      [install.id],
    );
    return install.id;
  });
  wakeReconcile(context);
  return id;
}

function wakeReconcile(context: ServerContext): void {
  context.wake.notify("reconcile");
  context.wake.notify("live");
}

/** The living install with this name, its row locked; `Fault` when there is none. */
export async function lockInstall(
  sql: Sql,
  name: string,
): Promise<{ id: InstallId; app_id: string; state: string }> {
  const [install] = await sql.query<{ id: InstallId; app_id: string; state: string }>(
    "select id, app_id, state from installs where name = $1 and state <> 'deleted' for update",
    [name],
  );
  if (!install)
    throw new Fault(
      "not_found",
      `Expected an install, but there is none called \`${name}\`. List them with \`landfall installs list\`.`,
    );
  return install;
}

async function findApp(sql: Sql, name: string): Promise<{ id: string; config: AppConfig }> {
  const [app] = await sql.query<{ id: string; config: AppConfig }>(
    `select apps.id, app_configs.config from apps join app_configs on app_configs.app_id = apps.id
     where apps.name = $1 order by app_configs.number desc limit 1`,
    [name],
  );
  if (!app) {
    throw new Fault(
      "not_found",
      `Expected an app, but there is none called \`${name}\`. Run \`landfall sync\` first.`,
    );
  }
  return app;
}

function checkInputs(
  config: AppConfig,
  given: Readonly<Record<string, string>>,
): Record<string, string> {
  const declared = new Map(config.inputs.map((input) => [input.name, input]));
  for (const name of Object.keys(given)) {
    const input = declared.get(name);
    if (!input) {
      const known = [...declared.keys()].map((key) => `\`${key}\``).join(", ") || "none";
      throw new Fault(
        "invalid",
        `Expected an input that the app declares (${known}), got \`${name}\`.`,
      );
    }
    if (input.sensitive) {
      throw new Fault(
        "invalid",
        `Input \`${name}\` is sensitive, and this version cannot take sensitive inputs: their values must never reach the server.`,
      );
    }
  }
  const inputs: Record<string, string> = {};
  for (const input of config.inputs) {
    const value = given[input.name] ?? (input.sensitive ? null : input.default);
    if (value !== null && value !== undefined) inputs[input.name] = value;
    else if (input.required) {
      throw new Fault(
        "invalid",
        `Expected a value for the input \`${input.name}\`. Give it with \`--input ${input.name}=…\`.`,
      );
    }
  }
  return inputs;
}
