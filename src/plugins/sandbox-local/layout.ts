/**
 * What lies where in a local install's folder.
 *
 *   <installs>/<install id>/
 *     account.json     the registry's port and password, made once
 *     registry/        the install's own registry: config.json, data/
 *     store/           the install's store
 *     agent/           the agent: config.json, enrolment.json until it has enrolled, its own files
 *     supervisor/      desired/, status/, programs/, logs/, data/
 *     sandbox.json     written last: the sandbox is complete
 */
import { join } from "node:path";
import { supervisorFolders } from "../../protocol/supervisor-folder.ts";

/** The paths of one install. */
export function layoutOf(installsDirectory: string, installId: string) {
  const directory = join(installsDirectory, installId);
  const supervisor = join(directory, "supervisor");
  return {
    directory,
    account: join(directory, "account.json"),
    registry: join(directory, "registry"),
    registryConfig: join(directory, "registry", "config.json"),
    registryData: join(directory, "registry", "data"),
    registryPortFile: join(directory, "registry", "port"),
    store: join(directory, "store"),
    agent: join(directory, "agent"),
    agentConfig: join(directory, "agent", "config.json"),
    agentIdentity: join(directory, "agent", "identity.json"),
    enrolment: join(directory, "agent", "enrolment.json"),
    supervisor,
    desired: join(supervisor, supervisorFolders.desired),
    status: join(supervisor, supervisorFolders.status),
    complete: join(directory, "sandbox.json"),
    removed: join(directory, "removed.json"),
  };
}
export type Layout = ReturnType<typeof layoutOf>;

/** Folders that exist from the start, so that whoever binds or watches them finds them. */
export function foldersOf(layout: Layout): string[] {
  const inner = [...Object.values(supervisorFolders), "data"].map((name) =>
    join(layout.supervisor, name),
  );
  return [layout.directory, layout.registryData, layout.agent, layout.supervisor, ...inner];
}
