/**
 * Values that older tries of jobs wanted to write into an install's store: refused, kept aside there, and
 * raised here until a person has looked. The values themselves never leave the install.
 */
import { Fault } from "../model/fault.ts";
import type { InstallId } from "../model/ids.ts";
import type { ServerContext } from "./context.ts";
import { recordEvent } from "./event-queue.ts";
import { lockInstall } from "./installs.ts";

/** A person has looked at it; it is no longer raised, and stays in the install's store. */
export async function dismissConflict(
  context: ServerContext,
  actor: string,
  installName: string,
  key: string,
): Promise<InstallId> {
  const id = await context.database.transaction(actor, async (sql) => {
    const install = await lockInstall(sql, installName);
    const [found] = await sql.query<{ component: string }>(
      `update conflicts set dismissed_at = clock_timestamp()
       where install_id = $1 and key = $2 and dismissed_at is null returning component`,
      [install.id, key],
    );
    if (!found) {
      throw new Fault(
        "not_found",
        `Expected a conflict of \`${installName}\`, got \`${key}\`. List them with \`landfall installs conflicts ${installName}\`.`,
      );
    }
    await recordEvent(sql, {
      kind: "store.conflict_dismissed",
      actor,
      installId: install.id,
      component: found.component,
      data: { key },
    });
    return install.id;
  });
  context.wake.notify("live");
  return id;
}
