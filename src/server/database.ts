/**
 * The server's way to PostgreSQL: plain SQL that one can paste into psql, and transactions that say who acts.
 *
 * The actor is set for the transaction alone; triggers write it into `events`, so that no caller can
 * forget to tell who changed what.
 */
import { createHash } from "node:crypto";
import pg from "pg";

/** Runs statements; a transaction is one too. */
export interface Sql {
  query<Row extends object>(text: string, values?: readonly unknown[]): Promise<Row[]>;
}

export interface Database extends Sql {
  /** Runs `work` in one transaction in the name of `actor`; whatever it throws rolls back. */
  transaction<Value>(actor: string, work: (sql: Sql) => Promise<Value>): Promise<Value>;
  close(): Promise<void>;
}

const connectionsMax = 16;
const statementTimeoutMs = 30_000;
/** Far more texts than the server has; one that builds its texts would otherwise fill every connection. */
const preparedMax = 500;

// int8 as number: counts and sizes here stay far below 2^53.
pg.types.setTypeParser(pg.types.builtins.INT8, Number);

/**
 * Opens a pool. `onError` hears of connections that break while nobody uses them.
 *
 * A statement with values is prepared once per connection and named by its text: planning costs more
 * than running most of them. Connections are pipelined: what does not wait for an answer goes out at
 * once, so that the beginning of a transaction costs no round trip of its own.
 */
export function openDatabase(connection: pg.PoolConfig, onError: (error: Error) => void): Database {
  const pool = new pg.Pool({
    max: connectionsMax,
    statement_timeout: statementTimeoutMs,
    connectionTimeoutMillis: 10_000,
    application_name: "landfall",
    pipeline: true,
    ...connection,
  });
  pool.on("error", onError);
  const names = createNames();
  return {
    query: (text, values) => run(pool, names, text, values),
    transaction: (actor, work) => runTransaction(pool, names, actor, work),
    close: () => pool.end(),
  };
}

/** Gives the name of a text's prepared statement; none to texts beyond the limit. */
type Names = (text: string) => string | undefined;

function createNames(): Names {
  const names = new Map<string, string>();
  return (text) => {
    const known = names.get(text);
    if (known !== undefined || names.size >= preparedMax) return known;
    const name = createHash("sha256").update(text).digest("hex").slice(0, 32);
    names.set(text, name);
    return name;
  };
}

async function run<Row extends object>(
  client: pg.Pool | pg.PoolClient,
  names: Names,
  text: string,
  values: readonly unknown[] = [],
): Promise<Row[]> {
  const name = values.length > 0 ? names(text) : undefined;
  const prepared = name === undefined ? { text } : { text, name };
  const { rows } = await client.query<Row>({ ...prepared, values: [...values] });
  return rows;
}

async function runTransaction<Value>(
  pool: pg.Pool,
  names: Names,
  actor: string,
  work: (sql: Sql) => Promise<Value>,
): Promise<Value> {
  const client = await pool.connect();
  let broken = false;
  try {
    // Not awaited: the first statement of `work` follows at once. If this fails, so does all after it.
    const begun = client.query(
      `begin; select set_config('landfall.actor', ${pg.escapeLiteral(actor)}, true)`,
    );
    begun.catch(() => {});
    const value = await work({ query: (text, values) => run(client, names, text, values) });
    await begun;
    await client.query("commit");
    return value;
  } catch (error) {
    // A rollback that fails means that the connection is gone: throw it away with it.
    await client.query("rollback").catch(() => {
      broken = true;
    });
    throw error;
  } finally {
    client.release(broken);
  }
}

/** The one row of a statement that must give exactly one. */
export function onlyRow<Row>(rows: readonly Row[]): Row {
  const [row] = rows;
  if (row === undefined || rows.length > 1) {
    throw new Error(`Expected exactly one row, got ${rows.length}.`);
  }
  return row;
}

/** True for PostgreSQL's error with this code, for example `23505` (unique violation). */
export function isDatabaseError(error: unknown, code: string): boolean {
  return error instanceof pg.DatabaseError && error.code === code;
}
