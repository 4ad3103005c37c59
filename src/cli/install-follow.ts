/** The end of every command that changes an install: wait with progress, then say how it went. */

import { Fault } from "../model/fault.ts";
import type { InstallView } from "../protocol/api.ts";
import type { ApiClient } from "./api-client.ts";
import { printJson, printLines } from "./command-options.ts";
import type { CliContext } from "./context.ts";
import { exitCodes } from "./exit-code.ts";
import { judgeInstall } from "./install-judgement.ts";
import { awaitInstall, reportFailure } from "./install-wait.ts";
import { createProgressDisplay, displayTarget } from "./progress-display.ts";

const waitMs = 60 * 60 * 1000;

/** Nothing of a paused install is begun: waiting here would be waiting for a person. */
function tellPause(context: CliContext, begun: InstallView, json: boolean): void {
  if (json) {
    printJson(context, begun);
    return;
  }
  const { name, pause } = begun;
  printLines(context, [
    `Accepted, but \`${name}\` is paused (${pause?.reason ?? ""}, by ${pause?.by ?? ""}): it waits for \`landfall installs resume ${name}\`.`,
  ]);
}

/** Waits (unless told not to), prints the end, and sets the exit code. */
export async function followInstall(
  context: CliContext,
  client: ApiClient,
  begun: InstallView,
  options: { wait: boolean; json?: boolean; done: string },
): Promise<void> {
  if (begun.pause && !begun.settled) return tellPause(context, begun, options.json === true);
  if (!options.wait) {
    if (options.json) return printJson(context, begun);
    return printLines(context, [`Under way. See \`landfall installs show ${begun.name}\`.`]);
  }
  const display = createProgressDisplay(
    displayTarget(context.terminal, options.json === true),
    () => performance.now(),
  );
  const signal = AbortSignal.timeout(waitMs);
  let install: InstallView | null;
  try {
    install = await awaitInstall(client, begun, { display, signal });
  } finally {
    display.finish();
  }
  if (signal.aborted) {
    throw new Fault(
      "unavailable",
      `Expected \`${begun.name}\` to come to rest within an hour, but it still works. See \`landfall installs show ${begun.name}\`.`,
    );
  }
  const failed = install !== null && judgeInstall(install) === "failed";
  if (failed) context.exitWith(exitCodes.failed);
  if (options.json) return printJson(context, install ?? { ...begun, state: "deleted" });
  if (failed && install) {
    context.terminal.note(`${(await reportFailure(client, install)).join("\n")}\n`);
    context.terminal.note(
      `\`${begun.name}\` failed. Correct the cause, then \`landfall deploy ${begun.name}\`.\n`,
    );
  } else {
    printLines(context, [`\`${begun.name}\` ${options.done}.`]);
  }
}
