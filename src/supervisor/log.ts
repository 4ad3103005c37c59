/** The supervisor's own log: one JSON object a line, a static message and data as fields. */

export type LogLevel = "info" | "warn" | "error";

/** Writes one line; never throws, since a full disk must not end the supervisor. */
export type Log = (level: LogLevel, message: string, fields?: Record<string, unknown>) => void;

/** A log that gives every line to `write`. */
export function createLog(write: (line: string) => void, date: () => Date): Log {
  return (level, message, fields = {}) => {
    try {
      write(`${JSON.stringify({ time: date().toISOString(), level, message, ...fields })}\n`);
    } catch {
      // Nowhere left to say it.
    }
  };
}
