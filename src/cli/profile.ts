/**
 * Which server a command speaks to: `--server` and `--token-file`, or the profile that `landfall dev`
 * left in its data folder (found from the current folder upwards, as git finds its own).
 *
 * Invariant: a token is sent to the address it was made for and to no other.
 */
import { readFile, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { z } from "zod";
import { replaceFile } from "../files/replace-file.ts";
import { Fault } from "../model/fault.ts";
import type { Profile } from "./api-request.ts";

const ProfileSchema = z.object({ url: z.string(), token: z.string() });

export interface ProfileOptions {
  readonly server?: string | undefined;
  readonly tokenFile?: string | undefined;
  /** The data folder of `landfall dev`. */
  readonly data?: string | undefined;
}

export const dataFolderName = ".landfall";
const tokenBytesMax = 4096;

/** Where dev leaves the profile in its data folder. */
export function profilePath(dataDirectory: string): string {
  return join(dataDirectory, "server", "profile.json");
}

/** The profile that the options name, or the nearest one; a `Fault` when there is none. */
export async function findProfile(options: ProfileOptions, cwd: string): Promise<Profile> {
  if (options.server === undefined && options.tokenFile !== undefined) {
    throw new Fault(
      "invalid",
      "Expected `--server URL` with `--token-file`, got the file alone. Give both.",
    );
  }
  const server = options.server === undefined ? null : parseServerUrl(options.server);
  if (server !== null && options.tokenFile !== undefined) {
    return { url: server, token: await readToken(resolve(cwd, options.tokenFile)) };
  }
  const found = await nearestProfile(options.data, cwd);
  if (server !== null && found?.url !== server) {
    throw new Fault(
      "unauthorized",
      `Expected a token for \`${server}\`, got none. Put it into a file that only you can read and name it with \`--token-file FILE\`.`,
    );
  }
  if (found === null) {
    throw new Fault(
      "unavailable",
      `Expected a server, got no \`${dataFolderName}/\` here or above. Start one with \`landfall dev\`, name its folder with \`--data DIR\`, or give \`--server URL --token-file FILE\`.`,
    );
  }
  return found;
}

/** The profile in a data folder, or null when there is none yet. */
export async function readProfile(path: string): Promise<Profile | null> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return null;
    throw new Fault("invalid", `Expected to read the profile \`${path}\`, got ${String(error)}.`, {
      cause: error,
    });
  }
  const parsed = ProfileSchema.safeParse(parseJson(text));
  if (!parsed.success) {
    throw new Fault(
      "invalid",
      `Expected a profile in \`${path}\`, got something else. Remove it; \`landfall dev\` writes it anew.`,
    );
  }
  return { url: parseServerUrl(parsed.data.url), token: parsed.data.token };
}

/** Writes the profile whole, readable by its owner alone. */
export async function writeProfile(path: string, profile: Profile): Promise<void> {
  await replaceFile(path, `${JSON.stringify(profile, null, 2)}\n`);
}

/** A token from a file, without the white space around it. */
export async function readToken(path: string): Promise<string> {
  const size = await stat(path).then(
    (found) => found.size,
    () => null,
  );
  if (size === null) {
    throw new Fault(
      "invalid",
      `Expected a file with a token at \`${path}\`, got none. Check \`--token-file\`.`,
    );
  }
  const token = size > tokenBytesMax ? "" : (await readFile(path, "utf8")).trim();
  if (!/^\S+$/.test(token)) {
    throw new Fault(
      "invalid",
      `Expected one token in \`${path}\`, got ${size} bytes of something else. Check \`--token-file\`.`,
    );
  }
  return token;
}

/** The address of a server without path and slash; a `Fault` for anything else. */
export function parseServerUrl(text: string): string {
  const url = URL.parse(text);
  if (!url || !/^https?:$/.test(url.protocol) || url.username !== "" || url.password !== "") {
    throw new Fault(
      "invalid",
      "Expected an address such as `http://127.0.0.1:7070`, without a user or a token in it, for the server. Check `--server`.",
    );
  }
  return url.origin;
}

async function nearestProfile(data: string | undefined, cwd: string): Promise<Profile | null> {
  if (data !== undefined) return readProfile(profilePath(resolve(cwd, data)));
  for (let folder = resolve(cwd); ; folder = dirname(folder)) {
    const found = await readProfile(profilePath(join(folder, dataFolderName)));
    if (found !== null || folder === dirname(folder)) return found;
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
