/** The keys that several component types share, in the app format's own words. */
import { z } from "zod";
import { parseDuration } from "../model/duration.ts";

/** A list of arguments, or one line for the shell. */
export const CommandLine = z.union([
  z.array(z.coerce.string()).min(1),
  z
    .string()
    .min(1)
    .transform((line) => ["/bin/sh", "-c", line]),
]);

/** Names to values; numbers and booleans become text, as an environment knows nothing else. */
export const EnvVars = z.record(
  z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "expected a name of letters, digits and _"),
  z.union([z.string(), z.number(), z.boolean()]).transform(String),
);

/** `30s`, `2m30s`: milliseconds. */
export const DurationMs = z.string().transform((text, context) => {
  const durationMs = parseDuration(text);
  if (durationMs !== null && durationMs > 0) return durationMs;
  context.addIssue({
    code: "custom",
    message: `expected a duration such as \`30s\`, got \`${text}\``,
  });
  return z.NEVER;
});
