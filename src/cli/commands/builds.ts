/** `landfall builds`: what was built, from which app, and into which artifact. */
import type { Command } from "commander";
import type { BuildView } from "../../protocol/api.ts";
import {
  type ClientOptions,
  openClient,
  printJson,
  printLines,
  withExamples,
  withJson,
  withServerOptions,
} from "../command-options.ts";
import type { CliContext } from "../context.ts";
import { formatAge, formatBytes } from "../duration.ts";
import { type Cell, formatTable } from "../table.ts";
import type { Tone } from "../terminal.ts";

const tones: Readonly<Record<BuildView["state"], Tone>> = {
  running: "busy",
  succeeded: "good",
  failed: "bad",
};
/** Enough of a digest to tell one from another. */
const digestLength = "sha256:".length + 12;

/** Adds the command. */
export function addBuildsCommand(program: Command, context: CliContext): void {
  const command = program
    .command("builds")
    .description("list builds and their artifacts")
    .option("--app <name>", "of this app only");
  withExamples(withJson(withServerOptions(command)), ["builds", "builds --app guestbook --json"]);
  command.action(async (options: ClientOptions & { app?: string }) => {
    const builds = await (await openClient(context, options)).builds(options.app);
    if (options.json) return printJson(context, { builds });
    const { terminal } = context;
    const rows = builds.map((build) => buildRow(build, context.now()));
    printLines(
      context,
      formatTable(["app", "component", "state", "artifact", "size", "age", "job"], rows, {
        width: terminal.width(),
        colours: terminal.colours,
      }),
    );
  });
}

function buildRow(build: BuildView, now: Date): Cell[] {
  return [
    build.app,
    build.component,
    { text: build.state, tone: tones[build.state] },
    build.artifact?.digest.slice(0, digestLength) ?? "–",
    build.artifact ? formatBytes(build.artifact.sizeBytes) : "–",
    formatAge(build.createdAt, now),
    build.jobId,
  ];
}
