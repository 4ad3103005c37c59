/** The table of promises is true: what it names exists. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { projectRoot, readPromises } from "./promises.ts";

test("the table holds every promise of the brief, by its number", () => {
  const numbers = readPromises().map(({ id }) => id);

  for (let number = 1; number <= 34; number++) assert(numbers.includes(`B${number}`), `B${number}`);
  assert.equal(new Set(numbers).size, numbers.length);
});

test("every row of the table names tests that exist", () => {
  for (const { id, tests } of readPromises()) {
    for (const { file, name } of tests) {
      const path = join(projectRoot, file);
      assert(existsSync(path), `${id} names ${file}, which does not exist`);
      assert(
        readFileSync(path, "utf8").includes(JSON.stringify(name)),
        `${id} names a test that is not in ${file}: ${name}`,
      );
    }
  }
});

test("every command that a row names is one of package.json's", () => {
  const { scripts } = JSON.parse(readFileSync(join(projectRoot, "package.json"), "utf8"));
  for (const { id, commands } of readPromises()) {
    for (const command of commands) {
      const [, script = ""] = /^npm (?:run )?([a-z-]+)/.exec(command) ?? [];
      assert(Object.hasOwn(scripts, script), `${id} names ${command}`);
    }
  }
});
