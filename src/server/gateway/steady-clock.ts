/**
 * The server's time as one connection tells it: the wall clock when the connection began, and from there
 * the monotonic clock. An agent holds what it is offered against the time that it was greeted with; a
 * wall clock that jumps meanwhile must not make every grant look old.
 */

/** A clock that never jumps, beginning at what `now` says now. */
export function createSteadyClock(now: () => Date, monotonicMs: () => number): () => Date {
  const [startedAt, startedMs] = [now().getTime(), monotonicMs()];
  return () => new Date(startedAt + monotonicMs() - startedMs);
}
