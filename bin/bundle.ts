/**
 * Bundles the programs into one file each: a program that starts for every job must start fast, and
 * where jobs are isolated they need to see one folder instead of the checkout.
 *
 * Nothing is done while no source has changed. Files are replaced by rename, so programs that start
 * meanwhile, and other bundlers at the same time, see whole files only.
 *
 * As a program: `bundle.ts [target folder]`.
 */
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Plugin } from "esbuild";

const names = ["executor", "plugin", "agent", "registry", "supervisor", "server"] as const;
type ProgramName = (typeof names)[number];
const recordFile = ".hash";
/** Another Node may read another form. */
const form = process.version;

/** Packages that are not ES modules look for `require` and for these two names. */
const banner = `import { createRequire as createRequire_ } from "node:module";
import { dirname as dirname_ } from "node:path";
import { fileURLToPath as fileURLToPath_ } from "node:url";
const require = createRequire_(import.meta.url);
const __filename = fileURLToPath_(import.meta.url);
const __dirname = dirname_(__filename);`;

interface BundleRecord {
  readonly form: string;
  readonly inputs: readonly string[];
  readonly hash: string;
}

/** The bundled programs in `target`, made anew when a source has changed. */
export async function bundlePrograms(
  root: string,
  target: string,
): Promise<Record<ProgramName, string>> {
  const files = Object.fromEntries(
    names.map((name) => [name, join(target, `${name}.mjs`)]),
  ) as Record<ProgramName, string>;
  if (await isFresh(root, target, Object.values(files))) return files;
  await mkdir(target, { recursive: true });
  const aside = await mkdtemp(join(target, ".new-"));
  try {
    const startedMs = Date.now();
    const inputs = await bundle(root, aside);
    // A source that changed while it was read is bundled again next time: no hash fits.
    const hash = (await hashOf(root, inputs, startedMs)) ?? "";
    const record: BundleRecord = { form, inputs, hash };
    for (const name of names) await rename(join(aside, `${name}.mjs`), files[name]);
    await writeFile(join(aside, recordFile), JSON.stringify(record));
    await rename(join(aside, recordFile), join(target, recordFile));
  } finally {
    await rm(aside, { recursive: true, force: true });
  }
  return files;
}

async function bundle(root: string, target: string): Promise<string[]> {
  // Loaded only when there is something to do: it alone costs more than the check.
  const { build } = await import("esbuild");
  const { metafile } = await build({
    absWorkingDir: root,
    entryPoints: names.map((name) => join(root, "bin", `${name}.ts`)),
    outdir: target,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node24",
    external: ["node:*", "pg-native"],
    banner: { js: banner },
    plugins: [sourceAddresses(root), englishOnly()],
    metafile: true,
    legalComments: "none",
    logLevel: "error",
  });
  return [...Object.keys(metafile.inputs), "bin/bundle.ts"].sort();
}

/** The server reads pages that lie beside its sources: there `import.meta.url` stays the source's own. */
function sourceAddresses(root: string): Plugin {
  return {
    name: "source addresses",
    setup(build) {
      build.onLoad({ filter: /[/\\]src[/\\]server[/\\].*\.ts$/ }, async ({ path }) => {
        const text = await readFile(path, "utf8");
        const address = JSON.stringify(pathToFileURL(resolve(root, path)).href);
        return { contents: text.replaceAll("import.meta.url", address), loader: "ts" };
      });
    },
  };
}

/** zod carries its messages in fifty languages, a third of each bundle, all read at every start. */
function englishOnly(): Plugin {
  return {
    name: "english only",
    setup(build) {
      build.onLoad({ filter: /[/\\]zod[/\\]v4[/\\]locales[/\\]index\.js$/ }, () => ({
        contents: 'export { default as en } from "./en.js";',
        loader: "js",
      }));
    },
  };
}

async function isFresh(root: string, target: string, files: readonly string[]): Promise<boolean> {
  const text = await readFile(join(target, recordFile), "utf8").catch(() => null);
  if (text === null) return false;
  const record = parseRecord(text);
  if (record?.form !== form || record.hash !== (await hashOf(root, record.inputs))) return false;
  const found = await Promise.all(files.map((file) => stat(file).catch(() => null)));
  return found.every((each) => each !== null);
}

/**
 * Names, sizes and times of all inputs; null when one is gone, or newer than `newestMs`. Reading them
 * would take ten times as long.
 */
async function hashOf(
  root: string,
  inputs: readonly string[],
  newestMs = Number.POSITIVE_INFINITY,
): Promise<string | null> {
  const hash = createHash("sha256");
  const found = await Promise.all(inputs.map((input) => stat(join(root, input)).catch(() => null)));
  for (const [index, each] of found.entries()) {
    if (!each || each.mtimeMs > newestMs) return null;
    hash.update(`${inputs[index]}\n${each.size}\n${each.mtimeMs}\n`);
  }
  return hash.digest("hex");
}

function parseRecord(text: string): BundleRecord | null {
  try {
    return JSON.parse(text) as BundleRecord;
  } catch {
    return null;
  }
}

if (import.meta.main) {
  const root = resolve(import.meta.dirname, "..");
  const files = await bundlePrograms(root, resolve(process.argv[2] ?? join(root, "dist")));
  for (const [name, file] of Object.entries(files)) console.log(`${name} ${relative(".", file)}`);
}
