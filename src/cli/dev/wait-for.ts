/** Waiting for a condition that nobody announces: looked at again and again, never for ever. */
import { setTimeout as delay } from "node:timers/promises";

const pollMs = 15;

/** The first value that is not null; null when the time is up. Throws when `signal` fires. */
export async function waitFor<Value>(
  look: () => Promise<Value | null>,
  options: { timeoutMs: number; signal?: AbortSignal; everyMs?: number },
): Promise<Value | null> {
  const deadline = performance.now() + options.timeoutMs;
  for (;;) {
    options.signal?.throwIfAborted();
    const value = await look();
    if (value !== null) return value;
    if (performance.now() >= deadline) return null;
    await delay(
      options.everyMs ?? pollMs,
      undefined,
      options.signal ? { signal: options.signal } : {},
    );
  }
}
