import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { findProfile, parseServerUrl, profilePath, writeProfile } from "./profile.ts";

let folder = "";
const profile = { url: "http://127.0.0.1:7070", token: "lft_own" };

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "landfall-profile-"));
  await mkdir(join(folder, ".landfall", "server"), { recursive: true });
  await mkdir(join(folder, "deep", "down"), { recursive: true });
  await writeProfile(profilePath(join(folder, ".landfall")), profile);
});
after(() => rm(folder, { recursive: true }));

test("the profile is readable by its owner alone", async () => {
  const { mode } = await stat(profilePath(join(folder, ".landfall")));
  assert.equal(mode & 0o777, 0o600);
});

test("the nearest profile is found from folders below", async () => {
  assert.deepEqual(await findProfile({}, join(folder, "deep", "down")), profile);
  assert.deepEqual(await findProfile({ data: ".landfall" }, folder), profile);
});

test("a token is never sent to another address than its own", async () => {
  await assert.rejects(findProfile({ server: "http://elsewhere:7070" }, folder), {
    code: "unauthorized",
  });
  assert.deepEqual(await findProfile({ server: "http://127.0.0.1:7070/" }, folder), profile);
});

test("address and token file are given together", async () => {
  const tokenFile = join(folder, "token");
  await writeFile(tokenFile, " lft_other\n");

  const found = await findProfile({ server: "https://landfall.example", tokenFile }, folder);

  assert.deepEqual(found, { url: "https://landfall.example", token: "lft_other" });
  await assert.rejects(findProfile({ tokenFile }, folder), { code: "invalid" });
  await assert.rejects(
    findProfile({ server: "https://landfall.example", tokenFile: join(folder, "none") }, folder),
    { code: "invalid" },
  );
});

test("without any profile the answer says how to get one", async () => {
  await assert.rejects(findProfile({ data: "nowhere" }, folder), /landfall dev/);
});

test("an address holds no user, no token and no other scheme", () => {
  assert.equal(parseServerUrl("https://landfall.example/some/path"), "https://landfall.example");
  for (const bad of ["ftp://x", "landfall", "http://user:lft_x@host"]) {
    assert.throws(
      () => parseServerUrl(bad),
      (error: Error) => !error.message.includes("lft_x"),
    );
  }
});
