/** Whether this server can do its work: `/healthz` says that it runs, `/readyz` that it can serve. */
import { describeError } from "../../model/fault.ts";
import type { HttpServices } from "./services.ts";

const readyMs = 1000;

/** Null when it can; otherwise what is missing. */
export async function findUnreadiness(services: HttpServices): Promise<string | null> {
  const signal = AbortSignal.timeout(readyMs);
  const expired = new Promise<string>((resolve) => {
    signal.addEventListener("abort", () => resolve(`no answer within ${readyMs} ms`), {
      once: true,
    });
  });
  return Promise.race([checkAll(services, signal), expired]);
}

async function checkAll(
  { context, options }: HttpServices,
  signal: AbortSignal,
): Promise<string | null> {
  try {
    const migrated = options.isMigrated
      ? await options.isMigrated()
      : (await context.database.query("select number from migrations limit 1")).length > 0;
    if (!migrated) return "the database is not migrated yet";
  } catch (error) {
    context.log.warn({ err: error }, "The database did not answer");
    return "the database does not answer";
  }
  try {
    const reachable = options.registry ? await options.registry.isReachable(signal) : true;
    return reachable ? null : "the registry does not answer";
  } catch (error) {
    return `the registry does not answer: ${describeError(error)}`;
  }
}
