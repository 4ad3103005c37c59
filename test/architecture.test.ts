/**
 * The unit table in ARCHITECTURE.md is the rule, and this test is its judge: every import in src/ must
 * be one that the table allows. Imports are read with a parser, so quotes, side effects and dynamic
 * imports do not escape it; type imports count, since they are arrows too.
 */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { dirname, join, relative } from "node:path";
import { test } from "node:test";
import { init, parse } from "es-module-lexer";
import { projectRoot } from "./promises.ts";

await init;
const units = readUnits(readFileSync(join(projectRoot, "ARCHITECTURE.md"), "utf8"));
const sources = globSync("src/**/*.ts", { cwd: projectRoot });
const isTest = (file: string) =>
  /\.(test|fixture)\.ts$|-(suite|conformance|double|bench)\.ts$/.test(file);

test("the table names the folders of src/, and is not empty", () => {
  const folders = globSync("src/*", { cwd: projectRoot }).map((path) => path.slice(4));

  assert(units.size >= 12);
  assert.deepEqual(folders.sort(), [...units.keys()].sort());
});

test("a unit may import only units in rows above its own, so there are no cycles", () => {
  const rows = [...units.keys()];
  for (const [unit, allowed] of units) {
    const below = rows.slice(rows.indexOf(unit));
    assert.deepEqual(
      allowed.filter((name) => below.includes(name)),
      [],
      unit,
    );
  }
});

test("every import is one that the table allows", () => {
  assert(sources.length > 50);
  const wrong = sources.filter((file) => !isTest(file)).flatMap(wrongImports);

  assert.deepEqual(wrong, []);
});

test("only bin/ reads the environment and the arguments, and ends the process", () => {
  const pattern = /\bprocess\.(env|argv|exit)\b|\bcreateRequire\b/;
  const wrong = sources
    .filter((file) => !isTest(file))
    .filter((file) => pattern.test(withoutComments(readFileSync(join(projectRoot, file), "utf8"))));

  assert.deepEqual(wrong, []);
});

test("no file or folder has a name that says nothing", () => {
  const empty =
    /(^|\/)(utils?|helpers?|common|shared|lib|core|misc|types|constants|base|manager|service)(\.|\/|$)/;
  const wrong = globSync("{src,bin,test,bench}/**/*", { cwd: projectRoot }).filter((path) =>
    empty.test(path),
  );

  assert.deepEqual(wrong, []);
});

test("the judge sees imports in every form", () => {
  const text = `
    import type { A } from "./a.ts";
    import { type B } from 'b-package/deep/path';
    import "@scope/side-effect/more";
    export type { C } from "../c/c.ts";
    const d = await import("d-package");`;

  assert.deepEqual(importsOf(text), [
    "./a.ts",
    "b-package/deep/path",
    "@scope/side-effect/more",
    "../c/c.ts",
    "d-package",
  ]);
});

function readUnits(text: string): Map<string, string[]> {
  const table = text.slice(text.indexOf("\n## The units\n"));
  const rows = table.matchAll(/^\| `([a-z]+)` \|[^|]*\|([^|]*)\|$/gm);
  return new Map(
    [...rows].map(([, unit = "", allowed = ""]) => [
      unit,
      [...allowed.matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name),
    ]),
  );
}

function wrongImports(file: string): string[] {
  const unit = file.split("/")[1] ?? "";
  const allowed = [unit, ...(units.get(unit) ?? [])];
  return importsOf(readFileSync(join(projectRoot, file), "utf8"))
    .filter((name) => !name.startsWith("node:"))
    .filter((name) => !allowed.includes(targetOf(file, name)))
    .map((name) => `${file} may not import ${name}`);
}

/** The unit of a relative import, or the package of another. */
function targetOf(file: string, name: string): string {
  if (!name.startsWith(".")) {
    return name
      .split("/")
      .slice(0, name.startsWith("@") ? 2 : 1)
      .join("/");
  }
  const path = relative("src", join(dirname(file), name));
  return path.startsWith("..") ? `outside of src/: ${path}` : (path.split("/")[0] ?? "");
}

function importsOf(text: string): string[] {
  // Type imports would vanish with the types: make them ordinary ones first.
  const visible = text.replace(/^(\s*(?:import|export)) type (?=[{*])/gm, "$1 ");
  const [imports] = parse(stripTypeScriptTypes(visible));
  return imports.flatMap((each) => {
    if (each.type === "import-meta") return [];
    // An import whose target cannot be read here is one that nobody may make.
    return [each.specifier ?? "(computed)"];
  });
}

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, "");
}
