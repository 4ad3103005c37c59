/**
 * Bundles the programs into one file each: a program that starts for every job must start fast, and
 * where jobs are isolated they need to see one folder instead of the checkout.
 *
 * Nothing is done while no source has changed. Files are replaced by rename, so programs that start
 * meanwhile, and other bundlers at the same time, see whole files only.
 *
 * As a program: `bundle.ts [target folder]`.
 */
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { isBuiltin } from "node:module";
import { join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Plugin } from "esbuild";
import { form, hashOf, isFresh, recordFile } from "./bundle-record.mjs";

const names = [
  "executor",
  "plugin",
  "agent",
  "registry",
  "supervisor",
  "server",
  "command-line",
] as const;
type ProgramName = (typeof names)[number];

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
    external: ["pg-native", "esbuild"],
    banner: { js: banner },
    plugins: [nodeModules(), ownSources(root), englishOnly()],
    metafile: true,
    legalComments: "none",
    logLevel: "error",
  });
  // Packages change only with what npm notes of them: one file to look at instead of a thousand.
  const isOwn = (input: string) => !/^node:|^node_modules/.test(input);
  const files = Object.keys(metafile.inputs).filter(isOwn);
  return [...files, "bin/bundle.ts", "node_modules/.package-lock.json"].sort();
}

/**
 * Node's own modules, taken as they are. An `import` of `node:http` reads every one of its properties,
 * and one of them loads a whole HTTP client: 45 ms of each start.
 */
function nodeModules(): Plugin {
  return {
    name: "node modules",
    setup(build) {
      build.onResolve({ filter: /^(node:)?[a-z0-9_/]+$/ }, ({ path }) =>
        isBuiltin(path) ? { path, namespace: "node" } : null,
      );
      build.onLoad({ filter: /.*/, namespace: "node" }, ({ path }) => ({
        contents: `module.exports = process.getBuiltinModule(${JSON.stringify(path)});`,
        loader: "js",
      }));
    },
  };
}

/**
 * Two changes to our own sources. The server reads pages that lie beside them: there `import.meta.url`
 * stays the source's own. And of zod only what is used: `{ z }` is all of it, `* as z` can be shaken.
 */
function ownSources(root: string): Plugin {
  return {
    name: "own sources",
    setup(build) {
      build.onLoad({ filter: /[/\\](src|bin)[/\\].*\.ts$/ }, async ({ path }) => {
        if (path.includes("node_modules")) return null;
        const text = await readFile(path, "utf8");
        const shaken = text.replace(/^import { z } from "zod";$/m, 'import * as z from "zod";');
        if (!/[/\\]src[/\\]server[/\\]/.test(path)) return { contents: shaken, loader: "ts" };
        const address = JSON.stringify(pathToFileURL(resolve(root, path)).href);
        return { contents: shaken.replaceAll("import.meta.url", address), loader: "ts" };
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

if (import.meta.main) {
  const root = resolve(import.meta.dirname, "..");
  const files = await bundlePrograms(root, resolve(process.argv[2] ?? join(root, "dist")));
  for (const [name, file] of Object.entries(files)) console.log(`${name} ${relative(".", file)}`);
}
