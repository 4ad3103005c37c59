/** What an ordinary HTTP answer to the WebSocket's upgrade means, and what to do about it; pure. */

/** For people: why there is no WebSocket. `server` is the address without anything secret. */
export function explainUpgradeAnswer(server: string, status: number | null): string {
  const got = status === null ? "an answer without `Upgrade`" : `HTTP ${status}`;
  const expected = `Expected a WebSocket at ${server}, got ${got}`;
  if (status === 429 || status === 503) {
    return `${expected}: the server takes no more connections just now. The agent tries again by itself.`;
  }
  if (status === 502 || status === 504) {
    return `${expected}: what stands in front of the server cannot reach it. The agent tries again by itself.`;
  }
  if (status !== null && status >= 300 && status < 400) {
    return `${expected}: it has moved. Correct \`serverUrl\` in the agent's configuration.`;
  }
  return `${expected}; something between this agent and the server (a proxy?) removes \`Upgrade\`, or this is not the server's address. Allow WebSockets to ${server} there, or check \`serverUrl\`.`;
}

/** `Retry-After` in milliseconds; null where there is none, or a date (the clocks need not agree). */
export function readRetryAfter(header: string | undefined): number | null {
  return header !== undefined && /^\d{1,6}$/.test(header.trim()) ? Number(header) * 1000 : null;
}
