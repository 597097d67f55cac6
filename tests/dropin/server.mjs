/** The program itself, in front of a provider. */

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const PROGRAM = process.env.TOOLSCOUT;
const PATIENCE_MS = 30_000;

/** Whatever ends this program ends the servers with it. */
const running = new Set();
process.on("exit", () => running.forEach((child) => child.kill("SIGKILL")));

export class Server {
  /**
   * @param {string} provider its address
   * @param {{embedder?: string, more?: string[], environment?: object, keys?: object[]}} options flags of `serve`, and keys to create, each
   *   with its flags
   */
  static async start(provider, { embedder = "none", more = [], environment = {}, keys = [] } = {}) {
    const server = new Server();
    server.data = mkdtempSync(join(tmpdir(), "toolscout-dropin-"));
    const flags = ["--data", server.data, "--embedder", embedder];
    server.keys = keys.map((words) => execFileSync(PROGRAM, [...flags, "keys", "create", ...words], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim());
    const words = [...flags, "serve", "--listen", "127.0.0.1:0", "--log", "warn", "--llm", `${provider}/v1`, ...more];
    server.process = spawn(PROGRAM, words, { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, ...environment } });
    running.add(server.process);
    server.process.once("exit", () => running.delete(server.process));
    for await (const line of createInterface({ input: server.process.stdout })) {
      server.url = line.replace("listening on ", "");
      break;
    }
    await until(async () => (await fetch(`${server.url}/readyz`)).ok);
    return server;
  }

  /** Its memory, and its open files and connections. */
  held() {
    const { pid } = this.process;
    const resident = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
    return { megabytes: Math.round(Number(resident[1]) / 1024), descriptors: readdirSync(`/proc/${pid}/fd`).length };
  }

  async end() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGTERM");
    await ended;
    rmSync(this.data, { recursive: true, force: true });
  }
}

export async function until(isSo, patience = PATIENCE_MS) {
  const end = Date.now() + patience;
  while (Date.now() < end) {
    if (await Promise.resolve().then(isSo).catch(() => false)) return;
    await pause(20);
  }
  throw new Error(`it did not come to be within ${patience} ms`);
}
