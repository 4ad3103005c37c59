/** The server's API as a person uses it who tries again when the server is away. */
import { readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";

export interface Api {
  get<Answer>(path: string): Promise<Answer>;
  post<Answer>(path: string, body?: object): Promise<Answer>;
  /** The body of an answer as text. */
  text(path: string): Promise<string>;
  /** One try: whether the server can serve. */
  isReady(): Promise<boolean>;
}

const patienceMs = 90_000;
const pauseMs = 100;
const requestMs = 15_000;

/** A client that waits for a server that is away, and gives up only on an answer that says no. */
export function createApi(url: string, tokenFile: string): Api {
  async function ask(path: string, init: RequestInit = {}): Promise<Response> {
    const deadline = performance.now() + patienceMs;
    for (;;) {
      const answer = await once(path, init);
      if (answer instanceof Response && answer.status < 500) {
        if (answer.ok) return answer;
        throw new Error(`${path} answered ${answer.status}: ${await answer.text()}`);
      }
      if (performance.now() > deadline) throw new Error(`${path} got no answer: ${String(answer)}`);
      await delay(pauseMs);
    }
  }

  async function once(path: string, init: RequestInit): Promise<Response | Error> {
    try {
      const token = (await readFile(tokenFile, "utf8")).trim();
      const headers = { ...init.headers, authorization: `Bearer ${token}` };
      const signal = AbortSignal.timeout(requestMs);
      const answer = await fetch(url + path, { ...init, headers, signal });
      // Read whole here, so that a connection that breaks in the middle is tried again too.
      return new Response(await answer.text(), { status: answer.status });
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  return {
    get: async (path) => (await ask(path)).json() as never,
    async post(path, body = {}) {
      const headers = { "content-type": "application/json" };
      return (
        await ask(path, { method: "POST", headers, body: JSON.stringify(body) })
      ).json() as never;
    },
    text: async (path) => (await ask(path)).text(),
    async isReady() {
      const answer = await fetch(`${url}/readyz`).catch(() => null);
      return answer?.ok === true;
    },
  };
}
