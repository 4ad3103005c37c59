/** Reads the server's database beside the server, and comes back when PostgreSQL was killed. */
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";

export interface DatabaseReader {
  /** Rows, waited for while PostgreSQL is away. */
  query<Row>(text: string, values?: readonly unknown[]): Promise<Row[]>;
  /** Rows, or null when there is no PostgreSQL now. */
  tryQuery<Row>(text: string, values?: readonly unknown[]): Promise<Row[] | null>;
  close(): Promise<void>;
}

const patienceMs = 60_000;
const pauseMs = 50;

/** A reader of whatever database `urlOf` names now. */
export function createDatabaseReader(urlOf: () => Promise<string>): DatabaseReader {
  let client: pg.Client | null = null;

  async function connected(): Promise<pg.Client> {
    if (client) return client;
    const fresh = new pg.Client({
      connectionString: await urlOf(),
      connectionTimeoutMillis: 5000,
      query_timeout: 20_000,
    });
    fresh.on("error", () => drop(fresh));
    fresh.on("end", () => drop(fresh));
    await fresh.connect();
    client = fresh;
    return fresh;
  }

  function drop(broken: pg.Client): void {
    if (client === broken) client = null;
  }

  async function run<Row>(text: string, values: readonly unknown[]): Promise<Row[]> {
    const current = await connected();
    try {
      return (await current.query(text, [...values])).rows as Row[];
    } catch (error) {
      // A mistake in the statement has a code of five characters that PostgreSQL gave it.
      const isMistake = error instanceof pg.DatabaseError && /^(42|22)/.test(error.code ?? "");
      drop(current);
      void current.end().catch(() => {});
      throw isMistake ? new Error(`${error.message}: ${text}`, { cause: "mistake" }) : error;
    }
  }

  return {
    async query<Row>(text: string, values: readonly unknown[] = []) {
      const deadline = performance.now() + patienceMs;
      for (;;) {
        try {
          return await run<Row>(text, values);
        } catch (error) {
          const isMistake = error instanceof Error && error.cause === "mistake";
          if (isMistake || performance.now() > deadline) throw error;
          await delay(pauseMs);
        }
      }
    },
    tryQuery: <Row>(text: string, values: readonly unknown[] = []) =>
      run<Row>(text, values).catch((error: unknown) => {
        if (error instanceof Error && error.cause === "mistake") throw error;
        return null;
      }),
    async close() {
      const last = client;
      client = null;
      await last?.end().catch(() => {});
    },
  };
}
