/**
 * The command `landfall`: its bundle where that is fresh, which makes the start of every command three
 * times as fast, and the sources themselves otherwise. `landfall dev` makes the bundle.
 */
import { enableCompileCache } from "node:module";
import { join } from "node:path";
import { isFresh } from "./bundle-record.mjs";

const root = join(import.meta.dirname, "..");
const dist = join(root, "dist");
const bundle = join(dist, "command-line.mjs");
enableCompileCache(join(dist, ".compile-cache"));
await ((await isFresh(root, dist, [bundle])) ? import(bundle) : import("./command-line.ts"));
