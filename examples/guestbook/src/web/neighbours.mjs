/**
 * The page's way to the database and the greeter. Either may be away: then the answer is null, and the
 * page says so instead of failing.
 */

const timeoutMs = 2500;

/** Functions that ask the neighbours and never throw. */
export function createNeighbours({ databaseUrl, databasePassword, greeterUrl }) {
  const authorization = `Bearer ${databasePassword}`;

  return {
    /** { total, entries } or null. */
    readBook: () => ask(databaseUrl, "/entries?limit=50", { headers: { authorization } }),
    /** { greeting, visitors } or null; counts the visitor. */
    greetVisitor: () => ask(greeterUrl, "/greeting", { method: "POST" }),
    /** The same without counting. */
    greet: () => ask(greeterUrl, "/greeting", {}),
    /** What to tell the visitor: `thanks`, `empty` or `away`. */
    async sign(name, message) {
      if (name.trim() === "" || message.trim() === "") return "empty";
      const entry = await ask(databaseUrl, "/entries", {
        method: "POST",
        headers: { authorization, "content-type": "application/json" },
        body: JSON.stringify({ name, message }),
      });
      return entry ? "thanks" : "away";
    },
  };
}

async function ask(base, path, options) {
  try {
    const response = await fetch(new URL(path, base), {
      ...options,
      signal: AbortSignal.timeout(timeoutMs),
    });
    if (response.ok) return await response.json();
    console.error(`${options.method ?? "GET"} ${path}: expected 2xx, got ${response.status}`);
  } catch (error) {
    console.error(`${options.method ?? "GET"} ${path}: ${error.cause?.code ?? error.message}`);
  }
  return null;
}
