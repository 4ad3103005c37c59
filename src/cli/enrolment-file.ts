/**
 * Puts an enrolment code where an agent looks for it, on the agent's own machine.
 *
 * Invariant: the agent's journal and jobs stay, so that the new agent finds what the old one still runs;
 * its identity is set aside, not deleted, and only once the code is in place.
 */
import { readFile, rename, rm, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { z } from "zod";
import { replaceFile } from "../files/replace-file.ts";
import { Fault } from "../model/fault.ts";
import { errorCode, explainFileError } from "../model/file-fault.ts";

const codeForm = /^lfe_[\w-]+\.[0-9a-f]{16}$/;
const configurationBytesMax = 1024 * 1024;

/** What this needs of an agent's configuration. */
const Configuration = z.object({
  serverUrl: z.string(),
  directory: z.string(),
  enrolmentFile: z.string().optional(),
});

export interface PlacedEnrolment {
  readonly file: string;
  /** Where the identity of the old agent is now; null when there was none. */
  readonly setAside: string | null;
}

/** Writes the code, and takes the old identity out of the way. */
export async function placeEnrolment(
  cwd: string,
  { directory, code, server }: { directory: string; code: string; server: string },
  now: Date,
): Promise<PlacedEnrolment> {
  if (!codeForm.test(code)) {
    throw new Fault(
      "invalid",
      "Expected an enrolment code, `lfe_…`, as `landfall agents replace` prints it, got something else.",
    );
  }
  const folder = resolve(cwd, directory);
  const configuration = await readConfiguration(folder);
  checkServer(configuration?.serverUrl ?? null, server, folder);
  const home = configuration?.directory ?? folder;
  const file = configuration?.enrolmentFile ?? join(folder, "enrolment.json");
  try {
    await replaceFile(file, `${JSON.stringify({ serverUrl: server, code })}\n`);
    // A key of a try that never came to an end belongs to another code.
    await rm(join(home, "enrolment-key.pem"), { force: true });
    return { file, setAside: await setAside(join(home, "identity.json"), now) };
  } catch (error) {
    throw explainFileError(error, `to write \`${file}\``, "Run this as the user whose agent it is");
  }
}

async function readConfiguration(folder: string): Promise<z.output<typeof Configuration> | null> {
  const file = join(folder, "config.json");
  try {
    const { size } = await stat(file);
    if (size > configurationBytesMax) throw new SyntaxError("too large");
    return Configuration.parse(JSON.parse(await readFile(file, "utf8")));
  } catch (error) {
    if (errorCode(error) === "ENOENT") return checkFolder(folder);
    if (error instanceof SyntaxError || error instanceof z.ZodError) {
      throw new Fault(
        "invalid",
        `Expected an agent's configuration in \`${file}\`, got something else. Name the agent's folder with \`--directory\`.`,
      );
    }
    throw explainFileError(error, `to read \`${file}\``, "Run this as the user whose agent it is");
  }
}

async function checkFolder(folder: string): Promise<null> {
  const found = await stat(folder).catch(() => null);
  if (found?.isDirectory()) return null;
  throw new Fault(
    "not_found",
    `Expected an agent's folder, but there is none at \`${folder}\`. Name it with \`--directory\`.`,
  );
}

function checkServer(known: string | null, server: string, folder: string): void {
  if (!URL.canParse(server) || !/^https?:$/.test(new URL(server).protocol)) {
    throw new Fault("invalid", `Expected the server's http(s) address, got \`${server}\`.`);
  }
  if (known === null || (URL.canParse(known) && new URL(known).href === new URL(server).href))
    return;
  throw new Fault(
    "conflict",
    `Expected the server of \`${join(folder, "config.json")}\`, which is \`${known}\`, got \`${server}\`. Correct \`serverUrl\` there, or give the same address.`,
  );
}

async function setAside(file: string, now: Date): Promise<string | null> {
  const aside = `${file}.replaced-${now.toISOString().replaceAll(/[:.]/g, "-")}`;
  try {
    await rename(file, aside);
    return aside;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return null;
    throw error;
  }
}
