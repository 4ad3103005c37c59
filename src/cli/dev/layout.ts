/** Where `landfall dev` keeps what in its data folder; the one list of these paths. */
import { join } from "node:path";
import { profilePath } from "../profile.ts";

export interface Layout {
  readonly data: string;
  readonly postgres: string;
  readonly server: {
    readonly directory: string;
    readonly config: string;
    readonly ready: string;
    readonly profile: string;
    readonly adminToken: string;
    readonly buildCode: string;
    readonly registryKeys: string;
  };
  readonly registry: { readonly directory: string; readonly config: string; readonly port: string };
  readonly buildAgent: {
    readonly directory: string;
    readonly config: string;
    readonly identity: string;
  };
  /** One folder per install, each with its own registry, store, agent and supervisor. */
  readonly installs: string;
  readonly logs: string;
  /** Bundles, where those of the checkout cannot be written. */
  readonly programs: string;
}

/** The paths below one data folder. */
export function layoutOf(data: string): Layout {
  const server = join(data, "server");
  const registry = join(data, "registry");
  const buildAgent = join(data, "build-agent");
  return {
    data,
    postgres: join(data, "postgres"),
    server: {
      directory: server,
      config: join(server, "config.json"),
      ready: join(server, "ready.json"),
      profile: profilePath(data),
      adminToken: join(server, "admin-token"),
      buildCode: join(server, "build-code.json"),
      registryKeys: join(server, "registry-keys.json"),
    },
    registry: {
      directory: join(registry, "content"),
      config: join(registry, "config.json"),
      port: join(registry, "port.json"),
    },
    buildAgent: {
      directory: join(buildAgent, "agent"),
      config: join(buildAgent, "config.json"),
      identity: join(buildAgent, "agent", "identity.json"),
    },
    installs: join(data, "installs"),
    logs: join(data, "logs"),
    programs: join(data, "run", "programs"),
  };
}

/** The log of one program. */
export function logPath(layout: Layout, name: string): string {
  return join(layout.logs, `${name}.log`);
}
