/**
 * The agent's log: one JSON object a line. Messages are static, data goes into fields, and nothing
 * secret (keys, codes, credentials) is ever given to it.
 */
export type LogFields = { readonly [name: string]: unknown };

export interface Logger {
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  /** Our own bug, or something that a person must look at. */
  error(message: string, fields?: LogFields): void;
}

/** A logger over anything that takes lines; `now` dates them. */
export function createLogger(write: (line: string) => void, now: () => Date): Logger {
  const log = (level: string) => (message: string, fields?: LogFields) =>
    write(`${JSON.stringify({ at: now().toISOString(), level, message, ...fields })}\n`);
  return { info: log("info"), warn: log("warn"), error: log("error") };
}
