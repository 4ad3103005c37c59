/** `landfall dev`: the whole of Landfall on this machine, with an app deployed into a local install. */
import { join, relative } from "node:path";
import { type Command, InvalidArgumentError } from "commander";
import { isFault } from "../../model/fault.ts";
import { explainFileError } from "../../model/file-fault.ts";
import { withExamples } from "../command-options.ts";
import type { CliContext } from "../context.ts";
import { findAddresses } from "../dev/app-address.ts";
import {
  bringUp,
  type DevOptions,
  type DevParts,
  type DevReady,
  takeDown,
  usualPort,
} from "../dev/dev.ts";
import { createStopControl, type StopControl } from "../dev/stop-control.ts";
import { type Run, summaryJson, summaryTable, welcomeLines } from "../dev/summary.ts";
import { tellChanges } from "../dev/tell-changes.ts";
import { type ExitCode, exitCodeOf, exitCodes } from "../exit-code.ts";
import { reportProblem } from "../problem-report.ts";
import { dataFolderName } from "../profile.ts";
import { createProgressDisplay } from "../progress-display.ts";

type CommandOptions = DevOptions & { once?: boolean };

const installName = "demo";

/** Adds the command. */
export function addDevCommand(program: Command, context: CliContext): void {
  const example = relative(context.cwd, join(context.root, "examples", "guestbook"));
  const command = program
    .command("dev")
    .description("run everything on this machine and deploy an app into a local install")
    .option("--data <dir>", "where everything is kept", dataFolderName)
    .option(
      "--port <n>",
      `the server's port (default: that of the last time, or ${usualPort})`,
      parsePort,
    )
    .option("--app <dir>", "the app directory", example)
    .option("--install <name>", "the name of the install", installName)
    .option("--once", "check that the app answers, print a summary, stop everything and exit");
  withExamples(command, [
    "dev",
    "dev --app ./my-app --port 8080",
    "dev --once --data /tmp/landfall",
  ]);
  command.action(async (options: CommandOptions) => {
    context.exitWith(await runDev(context, options));
  });
}

async function runDev(context: CliContext, options: CommandOptions): Promise<ExitCode> {
  const { terminal } = context;
  const once = options.once === true;
  const parts: DevParts = { platform: null, supervisors: null, closeFolder: null };
  const display = createProgressDisplay(terminal, () => performance.now());
  const control = createStopControl(context);
  let code: ExitCode;
  try {
    const ready = await bringUp(context, options, {
      parts,
      display,
      signal: control.signal,
      ask: once,
    });
    code = once ? sayOnce(context, ready) : await stay(context, options, ready, control);
  } catch (thrown) {
    display.finish();
    const error = explainFileError(thrown, `to write \`${pathOf(thrown) ?? options.data}\``);
    code = sayFailure(context, error, { once, stopped: control.signal.aborted });
  }
  const left = await takeDown(parts, control.waitingFor).catch((error: unknown) => {
    reportProblem(terminal, error, context.cwd);
    return ["something"];
  });
  control.end();
  if (control.signal.aborted && left.length === 0) terminal.note("Everything is stopped.\n");
  if (left.length > 0) terminal.note(`Still running, and not ended by us: ${left.join(", ")}.\n`);
  return left.length > 0 && code === exitCodes.done ? exitCodes.failed : code;
}

/** Summary, and JSON as the last line. */
function sayOnce({ terminal }: CliContext, { run, failure }: DevReady): ExitCode {
  if (!run.ok) terminal.note(`${failure.join("\n")}\n`);
  const settings = { width: terminal.width(), colours: terminal.colours };
  const lines = ["", ...summaryTable(run, settings), summaryJson(run)];
  terminal.write(`${lines.join("\n")}\n`);
  return run.ok ? exitCodes.done : exitCodes.failed;
}

/** Says where everything is (or what failed), then what changes, until a person stops it. */
async function stay(
  context: CliContext,
  options: CommandOptions,
  ready: DevReady,
  control: StopControl,
): Promise<ExitCode> {
  const { terminal } = context;
  const { run, profile, layout, client } = ready;
  if (!run.ok) {
    terminal.note(`\n${ready.failure.join("\n")}\n\n`);
    terminal.note(
      `\`${options.install}\` is not ready. Everything else stays up: correct the cause, then \`landfall sync ${options.app}\` and \`landfall deploy ${options.install}\`.\n`,
    );
  }
  const lines = welcomeLines({
    addresses: run.install ? findAddresses(run.install) : [],
    serverUrl: profile.url,
    token: terminal.interactive ? profile.token : null,
    tokenFile: shortPath(context.cwd, layout.server.adminToken),
    app: ready.app,
    install: options.install,
    readyMs: run.ok ? run.readyMs : null,
    colours: terminal.colours,
    landfall: shortPath(context.cwd, join(context.root, "bin", "landfall")),
    // Commands look for the usual folder here and above; any other has to be named.
    options: options.data === dataFolderName ? "" : ` --data ${options.data}`,
  });
  terminal.write(`${lines.join("\n")}\n`);
  await tellChanges(client, {
    signal: control.signal,
    tell: (line) => terminal.write(`${line}\n`),
  });
  return exitCodes.done;
}

/** The file that an error of the file system speaks of. */
function pathOf(error: unknown): string | null {
  return error instanceof Error && "path" in error ? String(error.path) : null;
}

/** The path as one would type it here. */
function shortPath(cwd: string, path: string): string {
  const short = relative(cwd, path);
  return short.startsWith("..") ? path : short;
}

/** A person who stops it while it starts has not met a failure; with `--once`, it did not do its work. */
function sayFailure(
  context: CliContext,
  error: unknown,
  { once, stopped }: { once: boolean; stopped: boolean },
): ExitCode {
  const { terminal } = context;
  const interrupted = stopped && !isFault(error);
  if (!interrupted) reportProblem(terminal, error, context.cwd);
  if (!once) return interrupted ? exitCodes.done : exitCodeOf(error);
  const reason = interrupted
    ? "stopped before it was ready"
    : error instanceof Error
      ? error.message
      : String(error);
  const run: Run = {
    ok: false,
    reason,
    install: null,
    jobs: [],
    answers: [],
    phases: {},
    readyMs: performance.now(),
  };
  terminal.write(`${summaryJson(run)}\n`);
  return interrupted ? exitCodes.failed : exitCodeOf(error);
}

function parsePort(text: string): number {
  const port = Number(text);
  if (Number.isInteger(port) && port >= 0 && port <= 65_535) return port;
  throw new InvalidArgumentError("Expected a port from 1 to 65535 (0 picks a free one).");
}
