/** A server's context on a real database, with the rows that most tests begin with. */
import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import type { AppConfig, ComponentConfig } from "../src/model/app-config.ts";
import { createFolderBlobStore } from "../src/server/blob-store.ts";
import type { ServerContext } from "../src/server/context.ts";
import { openKeys } from "../src/server/keys.ts";
import { createWake } from "../src/server/wake.ts";
import { createDatabase, type TestDatabase } from "./database.ts";

export interface TestServer extends TestDatabase {
  readonly context: ServerContext;
}

/** A context like the one that `bin/server.ts` makes. */
export async function createServerContext(): Promise<TestServer> {
  const test = await createDatabase();
  const directory = await mkdtemp(join(tmpdir(), "landfall-test-server-"));
  const publicUrl = "http://127.0.0.1:1";
  const context: ServerContext = {
    database: test.database,
    blobs: createFolderBlobStore(join(directory, "blobs"), "test"),
    keys: await openKeys(test.database, join(directory, "keys.json"), publicUrl),
    wake: createWake(),
    log: pino({ level: "silent" }),
    publicUrl,
    serverId: "test",
    progress: new Map(),
    now: () => new Date(),
    random: randomBytes,
  };
  return {
    ...test,
    context,
    async close() {
      await test.close();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** An app of `noop` components, given as name → what it depends on. */
export function noopApp(
  name: string,
  graph: Readonly<Record<string, readonly string[]>>,
): AppConfig {
  const components = Object.entries(graph).map(
    ([component, dependencies]): ComponentConfig => ({
      name: component,
      type: "noop",
      dependencies,
      source: null,
      config: {},
      outputs: {},
      needs: [],
      position: { file: `components/${component}.toml`, line: 1, column: 1 },
    }),
  );
  const sandbox = { type: "local", config: {} };
  return { name, displayName: name, description: "", sandbox, inputs: [], components };
}
