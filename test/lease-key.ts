/** How the model check copies a world and tells it from every other one. */
import { type Agent, codeOf, type Db, type Down, type Folder, type World } from "./lease-world.ts";

/** A copy that shares nothing that changes: jobs, frames and back-ups are replaced, never changed. */
export function copyWorld(world: World): World {
  const { db, agents, folders, ghost } = world;
  return {
    ...world,
    db: { ...db },
    agents: { A: copyAgent(agents.A), B: copyAgent(agents.B) },
    folders: { A: copyFolder(folders.A), B: copyFolder(folders.B) },
    executors: world.executors.map((each) => ({ ...each })),
    ghost: { ...ghost, started: [...ghost.started] },
  };
}

function copyAgent({ up, link, late }: Agent): Agent {
  if (!link) return { up, link, late: [...late] };
  const { kept, told, down } = link;
  return {
    up,
    link: { ...link, kept: [...kept], told: [...told], down: [...down] },
    late: [...late],
  };
}

function copyFolder(folder: Folder): Folder {
  return {
    ...folder,
    rows: folder.rows.map((each) => ({ ...each })),
    ended: [...folder.ended],
  };
}

/** A short text that tells a world from every other one. */
export function keyOf(world: World): string {
  const { db, backup, agents, folders, executors, ghost } = world;
  const { acked, started } = ghost;
  return [
    dbKey(db),
    backup ? dbKey(backup) : "",
    bits(world.restored, world.replaced, world.changed, ghost.succeeded, ghost.noticed),
    agentKey(agents.A),
    agentKey(agents.B),
    folderKey(folders.A),
    folderKey(folders.B),
    executors
      .map(({ e, by, alive, applied, end }) => `${e}${by}${bits(alive, applied)}${end}`)
      .join(),
    acked ? `${acked.e}${acked.end}` : "",
    started.join(),
    `${world.fence}.${ghost.applied}`,
  ].join("|");
}

function dbKey({ job, generation, agents, held }: Db): string {
  const { state, epoch, agent, cancelRequested, begun, losses, retries, code } = job;
  const counts = `${losses}${retries}${codeOf(epoch)}.${generation}`;
  return `${state}${agent}${bits(cancelRequested, begun, held)}${counts}${code}${agents.A}${agents.B}`;
}

function agentKey({ up, link, late }: Agent): string {
  const waiting = late.length > 0 ? JSON.stringify(late) : "";
  if (!link) return `${bits(up)}${waiting}`;
  const { ready, welcomed, recalling, cancelSent, kept, told, down } = link;
  const facts = bits(up, ready, welcomed, recalling, cancelSent);
  return `${facts}${kept.join()}/${told.join()}/${down.map(frameKey).join(";")}${waiting}`;
}

/** A frame in a few letters. */
export function frameKey(frame: Down): string {
  if (frame.t === "welcome") return `w${frame.keep.join()}-${frame.forget.join()}${frame.beyond}`;
  if ("beyond" in frame) return `${frame.t}${frame.e}${frame.beyond}`;
  return "e" in frame ? `${frame.t}${frame.e}` : frame.t;
}

function folderKey({ rows, newest, ended, beyond }: Folder): string {
  const written = rows.map(({ e, phase, ending }) => `${e}${phase}${bits(ending)}`).join();
  return `${written}/${newest}/${ended.map(({ e, end }) => `${e}${end}`).join()}${bits(beyond)}`;
}

/** One letter for so many flags: as long as every other, so that no two keys run into each other. */
function bits(...flags: boolean[]): string {
  let value = 0;
  for (const flag of flags) value = value * 2 + (flag ? 1 : 0);
  return String.fromCharCode(65 + value);
}
