/**
 * Which port belongs to which process: picked once, kept in ports.json over crashes, updates and restarts of
 * machine and supervisor, for as long as it can be bound.
 *
 * Ports are picked below the range from which systems take ports for outgoing connections, so that none of
 * those takes a process's port while it is down.
 */
import { createServer } from "node:net";
import { setTimeout } from "node:timers/promises";
import { describeError } from "../model/fault.ts";
import { readJsonFile, replaceFile } from "./folder-file.ts";
import type { Log } from "./log.ts";

const portMin = 20_000;
const portMax = 31_999;
const attemptsMax = 200;
/** A kept port is worth some patience: others were told of it. */
const keepAttemptsMax = 60;
const keepPauseMs = 50;
const loopback = "127.0.0.1";

export interface PortRecord {
  /** The port kept for this name when it can be bound, or else a new one. */
  keep(name: string): Promise<number>;
  /** Takes over a port that a status names, in case ports.json was lost. */
  adopt(name: string, port: number): void;
  forget(name: string): void;
  /** Writes what could not be written before. */
  retry(): void;
}

/** The record in this file. */
export function createPortRecord(file: string, random: () => number, log: Log): PortRecord {
  const ports = new Map<string, number>(readPorts(file));
  let due = false;

  async function keep(name: string): Promise<number> {
    const kept = ports.get(name);
    if (kept !== undefined) {
      for (let attempt = 0; attempt < keepAttemptsMax; attempt++) {
        if (await canBind(kept)) return kept;
        await setTimeout(keepPauseMs);
      }
      log("warn", "port lost to another program", { name, port: kept });
    }
    return pick(name);
  }

  async function pick(name: string): Promise<number> {
    for (let attempt = 0; attempt < attemptsMax; attempt++) {
      const port = portMin + Math.floor(random() * (portMax - portMin + 1));
      if (isTaken(port)) continue;
      // Reserved before the first wait: two names that look at once must not find the same port.
      const before = ports.get(name);
      ports.set(name, port);
      if (await canBind(port)) {
        save();
        return port;
      }
      if (before === undefined) ports.delete(name);
      else ports.set(name, before);
    }
    throw new Error(`Expected a free port from ${portMin} to ${portMax}, got none.`);
  }

  function isTaken(port: number): boolean {
    return ports.values().some((other) => other === port);
  }

  function save(): void {
    try {
      replaceFile(file, Object.fromEntries(ports));
      due = false;
    } catch (error) {
      if (!due) log("warn", "ports not written", { reason: describeError(error) });
      due = true;
    }
  }

  return {
    keep,
    adopt(name, port) {
      if (!ports.has(name) && !isTaken(port)) {
        ports.set(name, port);
        save();
      }
    },
    forget(name) {
      if (ports.delete(name)) save();
    },
    retry: () => (due ? save() : undefined),
  };
}

/** True when a program could listen on this port of the loopback address now. */
export function canBind(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen({ port, host: loopback, exclusive: true }, () =>
      server.close(() => resolve(true)),
    );
  });
}

function readPorts(file: string): [string, number][] {
  const value = readJsonFile(file);
  if (value === null || typeof value !== "object") return [];
  return Object.entries(value).filter(
    (entry): entry is [string, number] => Number.isInteger(entry[1]) && entry[1] > 0,
  );
}
