/** The configuration files of the programs that `landfall dev` starts; pure. */
import type { Programs } from "../context.ts";
import type { Layout } from "./layout.ts";

const buildSlots = 4;

/** For `bin/server.ts`. */
export function serverConfig(
  layout: Layout,
  settings: { databaseUrl: string; port: number; url: string; registryUrl: string },
): object {
  return {
    database: { url: settings.databaseUrl },
    listen: { host: "127.0.0.1", port: settings.port },
    publicUrl: settings.url,
    directory: layout.server.directory,
    registryUrl: settings.registryUrl,
    registryKeysFile: layout.server.registryKeys,
    adminTokenFile: layout.server.adminToken,
    buildCodeFile: layout.server.buildCode,
    readyFile: layout.server.ready,
    exitWithParent: true,
  };
}

/** For `bin/registry.ts`, the vendor's: it knows job tokens and nothing else. */
export function registryConfig(layout: Layout, port: number): object {
  return {
    directory: layout.registry.directory,
    listen: { host: "127.0.0.1", port },
    portFile: layout.registry.port,
    auth: { type: "bearer", keysFile: layout.server.registryKeys },
    exitWithParent: true,
  };
}

/** For `bin/agent.ts` in its role `build`; its provision jobs make local sandboxes. */
export function buildAgentConfig(
  layout: Layout,
  settings: { serverUrl: string; programs: Programs },
): object {
  const { agent, registry, executor, paths } = settings.programs;
  return {
    serverUrl: settings.serverUrl,
    directory: layout.buildAgent.directory,
    enrolmentFile: layout.server.buildCode,
    place: {
      storeDirectory: null,
      registry: null,
      supervisorDirectory: null,
      installsDirectory: layout.installs,
      // Whoever starts them appends the path of the configuration, as the job's folder to the executor.
      programs: { agent: [...agent, "--config"], registry: [...registry, "--config"], executor },
    },
    executor,
    slots: buildSlots,
    sandbox: "auto",
    readOnlyPaths: paths,
    environment: {},
    exitWithParent: true,
  };
}
