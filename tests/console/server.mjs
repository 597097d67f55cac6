/** The program itself, serving catalogs of its own. */

import { spawn, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const PROGRAM = process.env.TOOLSCOUT;
const PATIENCE_MS = 60_000;

/** Whatever ends this program ends the servers with it. */
const running = new Set();
process.on("exit", () => running.forEach((child) => child.kill("SIGKILL")));

export class Server {
  /**
   * @param {string[]} flags of the program, before the verb
   * @param {string[]} more flags, after the verb
   */
  static async start(flags = [], port = 0, data = mkdtempSync(join(tmpdir(), "toolscout-console-")), more = []) {
    const server = new Server();
    server.flags = ["--data", data, ...flags];
    server.data = data;
    server.process = spawn(PROGRAM, [...server.flags, "serve", "--listen", `127.0.0.1:${port}`, "--log", "warn", ...more], { stdio: ["ignore", "pipe", "inherit"] });
    running.add(server.process);
    server.process.once("exit", () => running.delete(server.process));
    for await (const line of createInterface({ input: server.process.stdout })) {
      server.url = line.replace("listening on ", "");
      break;
    }
    await server.until(async () => (await fetch(`${server.url}/readyz`)).ok);
    return server;
  }

  get port() {
    return Number(new URL(this.url).port);
  }

  /** Runs another command of the program on the same data. */
  command(...words) {
    return execFileSync(PROGRAM, [...this.flags, ...words], { encoding: "utf8" });
  }

  async post(path, body, type = "application/json") {
    const response = await fetch(`${this.url}/v1/${path}`, { method: "POST", headers: { "Content-Type": type }, body: typeof body === "string" ? body : JSON.stringify(body) });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }

  async get(path) {
    return (await fetch(`${this.url}/v1/${path}`)).json();
  }

  /** Waits until every tool of a catalog has its vectors. */
  async embedded(catalog) {
    await this.until(async () => (await this.get(`catalogs/${catalog}`)).pending_embeddings === 0);
  }

  async until(isSo) {
    const end = Date.now() + PATIENCE_MS;
    while (Date.now() < end) {
      if (await isSo().catch(() => false)) return;
      await pause(50);
    }
    throw new Error(`it did not come to be within ${PATIENCE_MS} ms`);
  }

  /** Ends it; the data stays. */
  async stop(signal = "SIGTERM") {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill(signal);
    await ended;
  }

  /** Ends it without a chance to say so. */
  async kill() {
    await this.stop("SIGKILL");
  }

  async end() {
    await this.stop();
    rmSync(this.data, { recursive: true, force: true });
  }
}
