/**
 * The journal's tables, and how a journal of an older agent becomes one of this agent in place.
 *
 *   jobs      what was launched and is not delivered yet, and how far its events are imported
 *   epochs    the newest epoch of every job that was launched
 *   events    the outbox: per job contiguous from its first row on; a gap is a row like any other
 *   ended     what ended, newest last, for a server that was restored from an older back-up
 *   refusals  what was refused
 *   facts     the newest checkpoint and generation
 */
import type { DatabaseSync } from "node:sqlite";
import { Fault } from "../model/fault.ts";

const schemaVersion = 2;

/** Makes or changes the tables, inside the caller's transaction; a `Fault` for a newer journal. */
export function migrateJournal(database: DatabaseSync, path: string): void {
  const version = Number(database.prepare("pragma user_version").get()?.user_version);
  if (version > schemaVersion) {
    throw new Fault(
      "conflict",
      `Expected a journal of version ${schemaVersion} or older in ${path}, got version ${version}. Start the newer agent that made it.`,
    );
  }
  if (version === schemaVersion) return;
  if (version === 1) database.exec("alter table jobs rename to jobs_of_1");
  database.exec(tables);
  if (version === 1) database.exec(fromVersion1);
  else database.exec(tablesSince1);
  database.exec(`pragma user_version = ${schemaVersion}`);
}

const tablesSince1 = `
  create table epochs (
    job_id text primary key, generation integer not null, n integer not null
  ) strict;
  create table refusals (
    id integer primary key autoincrement, at text not null,
    code text not null, reason text not null, job text
  ) strict;`;

const tables = `
  create table jobs (
    id integer primary key autoincrement,
    name text not null unique, job_id text not null, generation integer not null, n integer not null,
    component text, manifest text, manifest_digest text not null,
    deadline_ms real not null, silence_ms real,
    end_reason text check (end_reason in ('cancelled', 'timed_out', 'silent')),
    grace_ms real not null,
    segment integer not null default 1, offset integer not null default 0,
    next_seq integer not null default 1,
    outcome_seq integer, spooled_bytes integer not null default 0
  ) strict;
  create index jobs_by_job_id on jobs (job_id);
  create table events (
    job integer not null, seq integer not null, last integer not null,
    kind text not null check (kind in ('line', 'gap', 'outcome')),
    bytes integer not null, body text not null,
    primary key (job, seq),
    check (last >= seq)
  ) strict, without rowid;
  create table ended (
    id integer primary key autoincrement, name text not null unique,
    generation integer not null, n integer not null,
    manifest text not null, outcome text not null, bytes integer not null
  ) strict;
  -- How much is remembered is asked after every job: from here, without a look at the documents.
  create index ended_sizes on ended (id, bytes);
  create table facts (name text primary key, value text not null) strict;`;

/** Events of running jobs are imported anew from their files; the server tells which it has. */
const fromVersion1 = `
  insert into jobs (name, job_id, generation, n, component, manifest_digest, deadline_ms, end_reason, grace_ms)
    select name, job_id, generation, n, component, manifest_digest, deadline_ms, end_reason, grace_ms
    from jobs_of_1;
  drop table jobs_of_1;
  insert into facts (name, value)
    select 'generation', cast(max(generation) as text) from epochs having count(*) > 0;`;
