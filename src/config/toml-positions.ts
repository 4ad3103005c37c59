/**
 * Where each key and value of a TOML text stands.
 *
 * The parser gives values without places, so this scanner walks the text a second time. It is only
 * asked about text that parsed, so it checks nothing; it must merely never lose its way: dotted and
 * quoted keys, arrays of tables, inline tables, and strings that look like keys.
 */

/** Keys and, for elements of arrays, numbers from 0. */
export type TomlPath = readonly (string | number)[];

/** Offsets into the text. */
export interface TomlPlace {
  /** Of the key, or of a table's header. */
  readonly key: number;
  /** Of the value's first character, quotes included; the key's for a table. */
  readonly value: number;
}

/** The places of all keys by their path. */
export type TomlPlaces = ReadonlyMap<string, TomlPlace>;

/** The name of a path in `TomlPlaces`. */
export function pathKey(path: TomlPath): string {
  return JSON.stringify(path);
}

/** The place of a path, or of the nearest thing around it; null when that is the file itself. */
export function findPlace(places: TomlPlaces, path: TomlPath): TomlPlace | null {
  for (let length = path.length; length > 0; length--) {
    const place = places.get(pathKey(path.slice(0, length)));
    if (place) return place;
  }
  return null;
}

/** Walks the whole text. */
export function scanToml(text: string): TomlPlaces {
  return createScanner(text).scan();
}

const blank = /[ \t\r\n]*/y;
const comment = /#[^\n]*/y;
const bareKey = /[A-Za-z0-9_-]+/y;
const scalar = /[^,\]}#\r\n]*/y;
const strings = [
  /"""(?:[^\\]|\\[\s\S])*?"""(?:"{1,2}(?!"))?/y,
  /'''[\s\S]*?'''(?:'{1,2}(?!'))?/y,
  /"(?:[^"\\\n]|\\.)*"/y,
  /'[^'\n]*'/y,
];

function createScanner(text: string) {
  const places = new Map<string, TomlPlace>();
  const arrays = new Map<string, number>();
  let at = 0;

  function take(pattern: RegExp): string {
    pattern.lastIndex = at;
    const found = pattern.exec(text)?.[0] ?? "";
    at += found.length;
    return found;
  }

  function skip(): void {
    do take(blank);
    while (take(comment) !== "");
  }

  function scan(): TomlPlaces {
    let table: TomlPath = [];
    for (skip(); at < text.length; skip()) {
      const before = at;
      if (text[at] === "[") table = scanHeader();
      else scanPair(table);
      if (at === before) at++; // Not TOML: never stand still.
    }
    return places;
  }

  function scanHeader(): TomlPath {
    const start = at;
    const isArray = text[at + 1] === "[";
    at += isArray ? 2 : 1;
    const { path: keys } = scanKey();
    take(/[ \t]*\]{0,2}/y);
    let path: (string | number)[] = [];
    for (const [index, key] of keys.entries()) {
      path = [...path, key];
      const isLast = index === keys.length - 1;
      note(path, start, start);
      const count = arrays.get(pathKey(path));
      if (isArray && isLast) {
        arrays.set(pathKey(path), (count ?? 0) + 1);
        path = [...path, count ?? 0];
        note(path, start, start);
      } else if (count !== undefined) path = [...path, count - 1];
    }
    return path;
  }

  function scanPair(table: TomlPath): void {
    const { path: keys, offsets } = scanKey();
    take(/[ \t]*=[ \t]*/y);
    for (let length = 1; length < keys.length; length++) {
      const offset = offsets[length - 1] ?? at;
      note([...table, ...keys.slice(0, length)], offset, offset);
    }
    const path = [...table, ...keys];
    note(path, offsets[0] ?? at, at);
    scanValue(path);
  }

  /** A dotted key, each part bare or quoted. */
  function scanKey(): { path: string[]; offsets: number[] } {
    const path: string[] = [];
    const offsets: number[] = [];
    do {
      take(/[ \t]*/y);
      offsets.push(at);
      const quoted = takeString();
      path.push(quoted === null ? take(bareKey) : unquoteKey(quoted));
    } while (take(/[ \t]*\./y) !== "");
    return { path, offsets };
  }

  function scanValue(path: TomlPath): void {
    if (text[at] === "[") scanArray(path);
    else if (text[at] === "{") scanInlineTable(path);
    else if (takeString() === null) take(scalar);
  }

  function scanArray(path: TomlPath): void {
    at++;
    for (let index = 0; ; index++) {
      skip();
      if (at >= text.length || text[at] === "]") break;
      const before = at;
      note([...path, index], at, at);
      scanValue([...path, index]);
      skip();
      if (text[at] === ",") at++;
      else if (at === before) at++;
    }
    at++;
  }

  function scanInlineTable(path: TomlPath): void {
    at++;
    for (;;) {
      skip();
      if (at >= text.length || text[at] === "}") break;
      const before = at;
      scanPair(path);
      skip();
      if (text[at] === ",") at++;
      else if (at === before) at++;
    }
    at++;
  }

  function takeString(): string | null {
    for (const form of strings) {
      const found = take(form);
      if (found !== "") return found;
    }
    return null;
  }

  function note(path: TomlPath, key: number, value: number): void {
    const name = pathKey(path);
    if (!places.has(name)) places.set(name, { key, value });
  }

  return { scan };
}

function unquoteKey(quoted: string): string {
  if (quoted.startsWith("'")) return quoted.slice(1, -1);
  try {
    return String(JSON.parse(quoted));
  } catch {
    return quoted.slice(1, -1); // An escape that only TOML has, in a key: its place is not worth more.
  }
}
