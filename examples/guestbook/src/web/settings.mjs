/**
 * What this install told the page, from its environment: names, addresses, and what each component
 * gave. The password is used, and never shown.
 */

/** The settings; whatever is missing has a sensible stand-in, so that the page always comes up. */
export function readSettings(env, version) {
  const databaseUrl = env.DATABASE_URL ?? "";
  const greeterUrl = env.GREETER_URL ?? "";
  return {
    port: Number(env.PORT ?? 0),
    version,
    title: env.TITLE || "Guestbook",
    accent: /^#[0-9a-f]{6}$/i.test(env.ACCENT ?? "") ? env.ACCENT : "#e4572e",
    installName: env.INSTALL_NAME || env.LANDFALL_INSTALL_NAME || "this install",
    databaseUrl,
    databasePassword: env.DATABASE_PASSWORD ?? "",
    greeterUrl,
    gave: [
      {
        name: "credentials",
        what: "made a password, here, once",
        outputs: [
          { name: "username", value: env.DATABASE_USERNAME ?? "" },
          { name: "password", secret: true },
        ],
      },
      { name: "database", what: "keeps the entries", outputs: addressOf(databaseUrl) },
      { name: "migration", what: "set the table", outputs: listOf(env.MIGRATION) },
      { name: "greeter", what: "counts and greets", outputs: addressOf(greeterUrl) },
      { name: "web", what: "is this page", outputs: [{ name: "port", value: env.PORT ?? "" }] },
    ],
  };
}

function addressOf(url) {
  const port = URL.canParse(url) ? new URL(url).port : "";
  return [
    { name: "url", value: url },
    { name: "port", value: port },
  ];
}

function listOf(json) {
  try {
    return Object.entries(JSON.parse(json)).map(([name, value]) => ({
      name,
      value: String(value),
    }));
  } catch {
    return [];
  }
}
