/**
 * The server's way to PostgreSQL: plain SQL that one can paste into psql, and transactions that say who acts.
 *
 * The actor is set for the transaction alone; triggers write it into `events`, so that no caller can
 * forget to tell who changed what.
 */
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

// int8 as number: counts and sizes here stay far below 2^53.
pg.types.setTypeParser(pg.types.builtins.INT8, Number);

/** Opens a pool. `onError` hears of connections that break while nobody uses them. */
export function openDatabase(connection: pg.PoolConfig, onError: (error: Error) => void): Database {
  const pool = new pg.Pool({
    max: connectionsMax,
    statement_timeout: statementTimeoutMs,
    connectionTimeoutMillis: 10_000,
    application_name: "landfall",
    ...connection,
  });
  pool.on("error", onError);
  return {
    query: (text, values) => run(pool, text, values),
    transaction: (actor, work) => runTransaction(pool, actor, work),
    close: () => pool.end(),
  };
}

async function run<Row extends object>(
  client: pg.Pool | pg.PoolClient,
  text: string,
  values: readonly unknown[] = [],
): Promise<Row[]> {
  const { rows } = await client.query<Row>(text, [...values]);
  return rows;
}

async function runTransaction<Value>(
  pool: pg.Pool,
  actor: string,
  work: (sql: Sql) => Promise<Value>,
): Promise<Value> {
  const client = await pool.connect();
  let broken = false;
  try {
    await client.query("begin");
    await client.query("select set_config('landfall.actor', $1, true)", [actor]);
    const value = await work({ query: (text, values) => run(client, text, values) });
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
