/**
 * A server for the agent's own tests: real HTTP, real WebSocket, real signatures, and every way of
 * misbehaving that a test asks for.
 */
import assert from "node:assert/strict";
import { generateKeyPairSync, randomBytes, verify } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { type WebSocket, WebSocketServer } from "ws";
import { type AgentId, createId, type InstallId, type JobId } from "../model/ids.ts";
import type { Epoch } from "../model/job.ts";
import type { Json, JsonObject } from "../model/json.ts";
import { digestOfJson } from "../model/json.ts";
import { type JobEvent, lastSeqOf } from "../protocol/events.ts";
import { AgentFrame, type Checkpoint, type Hello, helloText } from "../protocol/frames.ts";
import type { JobCredentials } from "../protocol/job-folder.ts";
import type { JobKey } from "../protocol/job-key.ts";
import {
  decodePublicKey,
  encodePublicKey,
  keyIdOf,
  type SigningKey,
  signDocument,
} from "../protocol/signed-document.ts";

const waitMs = 15_000;
export const noCredentials = { vendorRegistry: null, sourceUrl: null, enrolment: null };

export type GatewayDouble = Awaited<ReturnType<typeof createGatewayDouble>>;

/** Starts on a free port of loopback, with TLS where a certificate is given; `close` ends it. */
export async function createGatewayDouble(tls: { key: string; cert: string } | null = null) {
  const root = createKey();
  const key = createKey();
  const forger = createKey();
  let agentId: AgentId = createId("agt", new Date(), randomBytes);
  const installId: InstallId = createId("ins", new Date(), randomBytes);
  let code = `lfe_${randomBytes(9).toString("hex")}.${root.keyId}`;
  const keyset = (number = 1) =>
    signDocument(
      "landfall-keyset",
      {
        version: 1,
        number,
        rootKeyId: root.keyId,
        keys: { [key.keyId]: encodePublicKey(key.publicKey) },
        serverUrl: "http://127.0.0.1",
      },
      root,
    );

  const frames: AgentFrame[] = [];
  const events = new Map<string, JobEvent[]>();
  const hellos: Hello[] = [];
  const enrolments: string[] = [];
  const state = {
    publicKey: "",
    enrolmentStatus: 200,
    takesAnyCode: false,
    acknowledges: true,
    keysetNumber: 1,
    protocols: [1],
    creditBytes: null as number | null,
    goodbye: null as { code: "retry" | "refused"; reason: string } | null,
    /** How the upgrade is answered instead, as a whole HTTP response. */
    upgradeAnswer: null as string | null,
    /** Takes no connection. */
    away: false,
    checkpoint: null as Checkpoint | null,
    leaseSeconds: 30,
    forget: new Set<string>(),
    badWelcome: false,
    answersRenewals: true,
  };
  let socket: WebSocket | null = null;
  let counter = 0;
  let sending: Promise<void> = Promise.resolve();
  let agentNonce = "";
  let welcomed = false;

  const take = (request: IncomingMessage, response: ServerResponse) => {
    if (request.method !== "POST") return response.writeHead(404).end();
    let body = "";
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", async () => {
      const { publicKey } = JSON.parse(body);
      enrolments.push(publicKey);
      const right = state.takesAnyCode || request.headers.authorization === `Enrolment ${code}`;
      const status = state.enrolmentStatus !== 200 ? state.enrolmentStatus : right ? 200 : 401;
      response.writeHead(status, { "content-type": "application/json" });
      if (status !== 200) {
        const message = "The enrolment code was used already.";
        return response.end(
          JSON.stringify({ error: { code: "unauthorized", message, problems: [] } }),
        );
      }
      state.publicKey = publicKey;
      const rootPublicKey = encodePublicKey(root.publicKey);
      response.end(
        JSON.stringify({
          agentId,
          role: "install",
          installId,
          rootPublicKey,
          keyset: await keyset(),
        }),
      );
    });
  };
  const http = tls ? createSecureServer(tls, take) : createServer(take);
  const gateway = new WebSocketServer({ noServer: true });
  http.on("upgrade", (request, stream, head) => {
    if (state.upgradeAnswer !== null) return stream.end(state.upgradeAnswer);
    assert.equal(request.url, "/agent");
    gateway.handleUpgrade(request, stream, head, (next) => gateway.emit("connection", next));
  });

  gateway.on("connection", async (next) => {
    if (state.away) return next.terminate();
    const nonce = randomBytes(16).toString("base64url");
    next.on(
      "message",
      (data) => void takeFrame(next, nonce, AgentFrame.parse(JSON.parse(String(data)))),
    );
    next.on("error", () => {});
    next.on("close", () => {
      if (socket === next) welcomed = false;
    });
    const serverTime = new Date().toISOString();
    const { protocols } = state;
    const challenge = { type: "challenge", protocols, nonce, serverTime };
    next.send(JSON.stringify({ ...challenge, keyset: await keyset(state.keysetNumber) }));
  });

  async function takeFrame(from: WebSocket, nonce: string, frame: AgentFrame): Promise<void> {
    frames.push(frame);
    if (frame.type === "hello") return greet(from, nonce, frame);
    if (frame.type === "renew") {
      if (!state.answersRenewals) return;
      return from.send(JSON.stringify({ type: "renewed", serverTime: new Date().toISOString() }));
    }
    if (frame.type === "lost") return ack(from, frame, 0);
    if (frame.type !== "events") return;
    const known = events.get(nameOf(frame)) ?? [];
    events.set(nameOf(frame), known);
    for (const event of frame.events) {
      const last = lastOf(frame);
      if (lastSeqOf(event) <= last) continue;
      assert.equal(event.seq, last + 1, "no hole in the events");
      known.push(event);
    }
    if (state.acknowledges) ack(from, frame, lastOf(frame));
  }

  async function greet(from: WebSocket, nonce: string, hello: Hello): Promise<void> {
    if (hello.agentId !== agentId) {
      const reason = "This agent has been replaced.";
      from.send(JSON.stringify({ type: "goodbye", code: "refused", reason }));
      return from.close(1008);
    }
    const text = helloText({ ...hello, nonce, rootKeyId: root.keyId });
    const signature = Buffer.from(hello.signature, "base64url");
    assert(verify(null, Buffer.from(text), decodePublicKey(state.publicKey), signature), "hello");
    hellos.push(hello);
    if (state.goodbye) {
      from.send(JSON.stringify({ type: "goodbye", ...state.goodbye }));
      return from.close(1008);
    }
    ({ agentNonce } = hello);
    counter = 0;
    const kept = hello.journal.filter((entry) => !state.forget.has(nameOf(entry)));
    const forget = hello.journal.filter((entry) => state.forget.has(nameOf(entry)));
    const welcome = {
      serverTime: new Date().toISOString(),
      generation: 1,
      leaseSeconds: state.leaseSeconds,
      keep: kept.map(({ jobId, epoch }) => ({
        jobId,
        epoch,
        acknowledged: lastOf({ jobId, epoch }),
      })),
      forget: forget.map(({ jobId, epoch }) => ({ jobId, epoch })),
      ...(state.creditBytes === null ? {} : { creditBytes: state.creditBytes }),
      ...checkpointed(),
    };
    socket = from;
    await sendSigned("welcome", welcome, state.badWelcome ? { key: forger } : {});
    welcomed = true;
  }

  const checkpointed = () => (state.checkpoint ? { checkpoint: state.checkpoint } : {});

  function lastOf(job: JobKey): number {
    const last = events.get(nameOf(job))?.at(-1);
    return last ? lastSeqOf(last) : 0;
  }

  function ack(to: WebSocket, { jobId, epoch }: JobKey, acknowledged: number): void {
    if (to === socket) void sendSigned("ack", { jobId, epoch, acknowledged, ...checkpointed() });
  }

  /** Sends an effect frame, honest unless told otherwise; gives back the envelope as sent. */
  async function sendSigned(
    type: string,
    content: object,
    lie: { key?: SigningKey; agentId?: AgentId; agentNonce?: string; counter?: number } = {},
  ): Promise<string> {
    const honest = Object.keys(lie).length === 0;
    const counted = { agentId, agentNonce, counter: counter + 1, ...lie };
    if (honest) counter++;
    const { agentId: id, agentNonce: nonce, counter: number } = counted;
    const payload = { ...content, type, agentId: id, agentNonce: nonce, counter: number };
    const to = socket;
    // In the order of their counters, however long each signature takes.
    const sent = sending.then(async () => {
      const document = await signDocument("landfall-frame", payload, lie.key ?? key);
      const envelope = JSON.stringify({ type: "signed", document });
      to?.send(envelope);
      return envelope;
    });
    sending = sent.then(() => undefined);
    return sent;
  }

  async function signOffer(
    config: JsonObject,
    options: {
      jobId?: JobId;
      epoch?: Epoch;
      component?: string;
      timeoutSeconds?: number;
      /** What is different in the manifest. */
      manifest?: JsonObject;
      credentials?: JobCredentials;
      manifestKey?: SigningKey;
      grantKey?: SigningKey;
      grant?: JsonObject;
    } = {},
  ) {
    const jobId = options.jobId ?? createId("job", new Date(), randomBytes);
    const epoch = options.epoch ?? { generation: 1, n: 1 };
    const manifest = { ...manifestOf(jobId, installId, config, options), ...options.manifest };
    const grant = {
      version: 1,
      jobId,
      manifestDigest: digestOfJson(manifest),
      agentId,
      epoch,
      serverTime: new Date().toISOString(),
      leaseSeconds: 30,
      ...options.grant,
    };
    return {
      key: { jobId, epoch },
      documents: {
        manifest: await signDocument("landfall-manifest", manifest, options.manifestKey ?? key),
        grant: await signDocument("landfall-grant", grant, options.grantKey ?? key),
        credentials: options.credentials ?? noCredentials,
      },
    };
  }

  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  return {
    url: `${tls ? "https" : "http"}://127.0.0.1:${(http.address() as AddressInfo).port}`,
    get code() {
      return code;
    },
    get agentId() {
      return agentId;
    },
    /** What `agents replace` does: the identity so far is refused, and there is a new code. */
    replaceAgent() {
      agentId = createId("agt", new Date(), randomBytes);
      code = `lfe_${randomBytes(9).toString("hex")}.${root.keyId}`;
      state.publicKey = "";
      for (const client of gateway.clients) client.terminate();
    },
    ack: (job: JobKey, acknowledged: number) => sendSigned("ack", { ...job, acknowledged }),
    port: (http.address() as AddressInfo).port,
    forger,
    frames,
    hellos,
    enrolments,
    state,
    sendSigned,
    signOffer,
    sendRaw: (text: string) => socket?.send(text),
    isWelcomed: () => welcomed,
    cut() {
      welcomed = false;
      socket?.terminate();
    },
    eventsOf: (job: JobKey) => events.get(nameOf(job)) ?? [],
    outcomesOf: (job: JobKey) =>
      (events.get(nameOf(job)) ?? []).flatMap((event) =>
        event.type === "outcome" ? [event.outcome] : [],
      ),
    /** Signs and sends an offer. */
    async offer(config: JsonObject, options: Parameters<typeof signOffer>[1] = {}) {
      const { key, documents } = await signOffer(config, options);
      await sendSigned("offer", documents);
      return key;
    },
    /** The first frame of this type that fits, waiting for it. */
    async next<T extends AgentFrame["type"]>(
      type: T,
      fits: (frame: Extract<AgentFrame, { type: T }>) => boolean = () => true,
    ): Promise<Extract<AgentFrame, { type: T }>> {
      const isIt = (frame: AgentFrame): frame is Extract<AgentFrame, { type: T }> =>
        frame.type === type && fits(frame as Extract<AgentFrame, { type: T }>);
      await until(() => frames.some(isIt), `a frame of type ${type}`);
      const found = frames.find(isIt);
      assert(found);
      return found;
    },
    async close() {
      for (const client of gateway.clients) client.terminate();
      gateway.close();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}

/** Polls until the condition holds, with a deadline. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  patienceMs = waitMs,
): Promise<void> {
  const deadline = performance.now() + patienceMs;
  while (!(await condition())) {
    assert(performance.now() < deadline, `Waited ${patienceMs} ms in vain for ${what}.`);
    await sleep(5);
  }
}

function manifestOf(
  jobId: JobId,
  installId: InstallId,
  config: JsonObject,
  options: { component?: string; timeoutSeconds?: number },
): { [key: string]: Json } {
  return {
    version: 1,
    jobId,
    operation: "apply",
    createdAt: "2030-01-01T00:00:00Z",
    app: { id: `app_${"0".repeat(24)}`, name: "guestbook" },
    install: { id: installId, name: "acme" },
    plugin: "process",
    component: { name: options.component ?? jobId, type: "process", config },
    sandbox: null,
    source: null,
    artifact: null,
    inputs: {},
    dependencies: {},
    approval: null,
    fingerprint: null,
    timeoutSeconds: options.timeoutSeconds ?? 60,
  };
}

function createKey() {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  return { keyId: keyIdOf(publicKey), privateKey, publicKey };
}

function nameOf({ jobId, epoch }: JobKey): string {
  return `${jobId}.${epoch.generation}.${epoch.n}`;
}
