/**
 * The server, put together: database, keys, HTTP, gateway, background work; and what others wait for
 * at its first start (a token for the first person, a code for the build agent).
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Logger } from "pino";
import { z } from "zod";
import { removeUnfinished, replaceFile } from "../files/replace-file.ts";
import { Fault } from "../model/fault.ts";
import { startBackground } from "./background.ts";
import { createFolderBlobStore } from "./blob-store.ts";
import type { ServerContext } from "./context.ts";
import { openDatabase } from "./database.ts";
import { createEnrolmentCode } from "./enrolment.ts";
import { attachGateway, createGateway } from "./gateway/gateway.ts";
import { createHttp } from "./http/http.ts";
import { restartLeases } from "./job-machine.ts";
import { openKeys } from "./keys.ts";
import { migrate } from "./migrate.ts";
import { createRegistryForward } from "./registry-forward.ts";
import { beatServer, forgetConnections, removeServer } from "./servers.ts";
import { createToken } from "./tokens.ts";
import { createWake } from "./wake.ts";
import { startWakeRelay } from "./wake-relay.ts";

export const ServerConfig = z.object({
  database: z.object({ url: z.string() }),
  listen: z.object({ host: z.string(), port: z.int().min(0).max(65535) }),
  /** Where agents, jobs and people reach it. */
  publicUrl: z.string(),
  /** Keys and blobs. */
  directory: z.string(),
  /** The vendor's registry, a process of its own. */
  registryUrl: z.string(),
  /** Written here for that registry: the public keys that verify job tokens. */
  registryKeysFile: z.string(),
  /** Written at the first start: the first person's token. */
  adminTokenFile: z.string(),
  /** Written while no build agent is enrolled: what it enrols with. */
  buildCodeFile: z.string(),
  /** Written once the server answers. */
  readyFile: z.string().exactOptional(),
  /** Names this server among those on one database. */
  serverId: z.string().default("main"),
  /** End when standard input closes: whoever started it is gone. */
  exitWithParent: z.boolean().default(false),
});
export type ServerConfig = z.output<typeof ServerConfig>;

const adminTokenDays = 90;

/** A server that answers; `context` is for whoever drives it in the same process. */
export interface RunningServer {
  readonly url: string;
  readonly context: ServerContext;
  stop(): Promise<void>;
}

/** Starts a server and gives the function that stops it. */
export async function startServer(
  config: ServerConfig,
  options: {
    migrationsDirectory: string;
    log: Logger;
    now: () => Date;
    random: (size: number) => Uint8Array;
  },
): Promise<RunningServer> {
  const { log } = options;
  const database = openDatabase({ connectionString: config.database.url }, (error) =>
    log.warn({ err: error }, "A database connection broke"),
  );
  try {
    await migrate(database, options.migrationsDirectory);
    const keysFile = join(config.directory, "keys.json");
    const { registryKeysFile, adminTokenFile, buildCodeFile } = config;
    await removeUnfinished([keysFile, registryKeysFile, adminTokenFile, buildCodeFile]);
    const keys = await openKeys(database, keysFile, config.publicUrl);
    const context: ServerContext = {
      database,
      blobs: createFolderBlobStore(join(config.directory, "blobs"), config.serverId),
      keys,
      wake: createWake(),
      log,
      publicUrl: config.publicUrl,
      serverId: config.serverId,
      progress: new Map(),
      now: options.now,
      random: options.random,
    };
    // One that was killed could not say that its agents are gone; lease clocks begin anew.
    await beatServer(database, context.serverId);
    await forgetConnections(database, context.serverId);
    await restartLeases(database);
    await writeFirstSteps(context, config);
    return await listen(context, config);
  } catch (error) {
    await database.close();
    throw error;
  }
}

async function listen(context: ServerContext, config: ServerConfig): Promise<RunningServer> {
  const registry = createRegistryForward(config.registryUrl);
  const http = await createHttp(context, { registry });
  const gateway = createGateway(context);
  attachGateway(http.server, gateway);
  await http.listen(config.listen).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EADDRINUSE") throw error;
    throw new Fault(
      "conflict",
      `Expected port ${config.listen.port} to be free, but another program listens there. Stop it, or take another with \`--port\`.`,
    );
  });
  const { wake, progress, log } = context;
  const connection = { connectionString: config.database.url };
  const relay = startWakeRelay({ connection, wake, progress, log });
  const background = startBackground(context);
  if (config.readyFile) {
    const ready = { url: config.publicUrl, pid: process.pid };
    await replaceFile(config.readyFile, JSON.stringify(ready));
  }
  return {
    url: config.publicUrl,
    context,
    async stop() {
      await background.stop();
      await gateway.close();
      await http.close();
      registry.close();
      await relay.stop();
      await removeServer(context.database, context.serverId).catch((error: unknown) =>
        log.warn({ err: error }, "The server could not sign off"),
      );
      await context.database.close();
    },
  };
}

async function writeFirstSteps(context: ServerContext, config: ServerConfig): Promise<void> {
  await replaceFile(config.registryKeysFile, JSON.stringify(context.keys.publicKeys));
  if (!existsSync(config.adminTokenFile)) {
    const { secret } = await createToken(context, "server", {
      name: "first token",
      kind: "api",
      days: adminTokenDays,
    });
    await replaceFile(config.adminTokenFile, secret);
  }
  const builders = await context.database.query(
    "select 1 from agents where role = 'build' and revoked_at is null limit 1",
  );
  if (builders.length > 0) return;
  const { code } = await createEnrolmentCode(context, "server", {
    role: "build",
    installName: null,
  });
  await replaceFile(config.buildCodeFile, JSON.stringify({ serverUrl: config.publicUrl, code }));
}
