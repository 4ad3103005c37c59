/**
 * Asks one process once whether it is well: by HTTP, by a TCP connection, or by a command of its own.
 *
 * Invariant: a probe always ends, in about `timeoutMs` at most, and leaves neither socket nor process.
 */
import { spawn } from "node:child_process";
import { request } from "node:http";
import { connect } from "node:net";
import { describeError } from "../model/fault.ts";
import type { HealthCheck } from "../protocol/supervisor-folder.ts";

const loopback = "127.0.0.1";

/** What a probe must know of the process. */
export interface ProbeTarget {
  readonly port: number | null;
  readonly directory: string;
  readonly environment: Readonly<Record<string, string>>;
}

/** Null when the process is well, or else what was found. */
export async function probe(check: HealthCheck, target: ProbeTarget): Promise<string | null> {
  try {
    if (check.command !== undefined) {
      return await probeCommand(check.command, check.timeoutMs, target);
    }
    if (target.port === null) return "Expected a port to probe, got none.";
    return check.http === undefined
      ? await probeTcp(target.port, check.timeoutMs)
      : await probeHttp(target.port, check.http, check.timeoutMs);
  } catch (error) {
    // A path or command that cannot even be asked, such as one with a NUL in it.
    return `The probe could not be made: ${describeError(error)}`;
  }
}

function probeHttp(port: number, path: string, timeoutMs: number): Promise<string | null> {
  return new Promise((resolve) => {
    const asked = request({ host: loopback, port, path: absolute(path), agent: false });
    const timer = setTimeout(() => end(`GET ${path}: no answer in ${timeoutMs} ms.`), timeoutMs);
    function end(failure: string | null): void {
      clearTimeout(timer);
      asked.destroy();
      resolve(failure);
    }
    asked.on("error", (error) => end(`GET ${path}: ${describeError(error)}.`));
    asked.on("response", ({ statusCode = 0 }) => {
      end(statusCode >= 200 && statusCode < 400 ? null : `GET ${path}: status ${statusCode}.`);
    });
    asked.end();
  });
}

function probeTcp(port: number, timeoutMs: number): Promise<string | null> {
  return new Promise((resolve) => {
    const socket = connect({ host: loopback, port });
    const timer = setTimeout(() => end(`Port ${port}: no answer in ${timeoutMs} ms.`), timeoutMs);
    function end(failure: string | null): void {
      clearTimeout(timer);
      socket.destroy();
      resolve(failure);
    }
    socket.on("error", (error) => end(`Port ${port}: ${describeError(error)}.`));
    socket.on("connect", () => end(null));
  });
}

function probeCommand(
  [program = "", ...parts]: readonly string[],
  timeoutMs: number,
  target: ProbeTarget,
): Promise<string | null> {
  return new Promise((resolve) => {
    const child = spawn(program, parts, {
      cwd: target.directory,
      env: target.environment,
      stdio: "ignore",
      detached: true,
    });
    const timer = setTimeout(() => {
      if (child.pid !== undefined) killGroup(child.pid);
      resolve(`The health command did not end in ${timeoutMs} ms.`);
    }, timeoutMs);
    child.on("error", (error) => {
      clearTimeout(timer);
      resolve(`The health command could not be started: ${describeError(error)}.`);
    });
    child.on("exit", (code, signal) => {
      clearTimeout(timer);
      resolve(code === 0 ? null : `The health command ended with ${signal ?? `code ${code}`}.`);
    });
  });
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // It ended by itself.
  }
}

function absolute(path: string): string {
  return path.startsWith("/") ? path : `/${path}`;
}
