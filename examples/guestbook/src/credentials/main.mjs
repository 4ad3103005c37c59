/**
 * Makes the database's password once and gives the same one ever after.
 *
 * It is kept in LANDFALL_STATE_DIR, a folder of this component in the install. Written aside and
 * renamed, so that a run that dies half-way leaves either nothing or all of it.
 */
import { randomBytes } from "node:crypto";
import { appendFileSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const { LANDFALL_STATE_DIR, LANDFALL_OUTPUTS } = process.env;
if (!LANDFALL_STATE_DIR || !LANDFALL_OUTPUTS) {
  console.error("Expected LANDFALL_STATE_DIR and LANDFALL_OUTPUTS in the environment.");
  process.exit(1);
}

const file = join(LANDFALL_STATE_DIR, "password");
const found = readPassword();
const password = found ?? makePassword();
console.log(found ? "the password exists already; it stays" : "made a new password");
appendFileSync(LANDFALL_OUTPUTS, `username=guestbook\n${JSON.stringify({ password })}\n`);

function readPassword() {
  try {
    return readFileSync(file, "utf8").trim() || null;
  } catch (error) {
    if (error.code === "ENOENT") return null;
    throw error;
  }
}

function makePassword() {
  const aside = `${file}.${process.pid}`;
  writeFileSync(aside, `${randomBytes(24).toString("base64url")}\n`, { mode: 0o600, flush: true });
  renameSync(aside, file);
  return readPassword();
}
