// A real engine and a real browser, for all specs of a run.
import { execFile, spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import assert from "node:assert/strict";
import { test } from "node:test";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

const root = new URL("../..", import.meta.url).pathname;
export const program = process.env.PROGRESSOR ?? join(root, "bin/progressor");
const axeSource = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Starts `progressor dev` on its own port. When stop returns, it has ended. */
export async function startEngine(...flags) {
  const dir = await mkdtemp(join(tmpdir(), "console-"));
  const child = spawn(program, ["dev", "--listen", "127.0.0.1:0", "--data-dir", dir, ...flags], { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  child.stderr.on("data", (chunk) => (said += chunk));
  const ended = new Promise((done) => child.on("exit", done));
  const url = await new Promise((found, failed) => {
    child.stdout.on("data", (chunk) => {
      said += chunk;
      const banner = said.match(/API +(http:\/\/\S+)/);
      if (banner) found(banner[1]);
    });
    child.on("exit", (code) => failed(new Error(`progressor dev ended with ${code}:\n${said}`)));
  });
  return {
    url,
    post: (method, body) => post(url, method, body),
    log: () => said,
    /** Runs a command on the database of the engine, and returns its output. */
    async administer(...command) {
      const dsn = (await readFile(join(dir, "dsn"), "utf8")).trim();
      return (await promisify(execFile)(program, [...command, "--db.dsn", dsn])).stdout;
    },
    async stop() {
      child.kill("SIGTERM");
      await ended;
      await rm(dir, { recursive: true, force: true });
    },
  };
}

async function post(url, method, body) {
  const answer = await fetch(`${url}/progressor.v1.${method}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const text = await answer.text();
  if (!answer.ok) throw Object.assign(new Error(`${method}: ${text}`), { answer: JSON.parse(text || "{}") });
  return JSON.parse(text);
}

export const bytes = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64");

export const startBrowser = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });

/** Opens a page that records what goes wrong: errors, loads from other hosts, and violations of its policy. */
export async function openPage(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, locale: "en-US", timezoneId: "Europe/Berlin", permissions: ["clipboard-read", "clipboard-write"], ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const wrong = [];
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && !m.text().includes("Failed to load resource") && wrong.push(`console ${m.type()}: ${m.text()}`));
  page.on("pageerror", (e) => wrong.push(`uncaught: ${e.message}`));
  page.on("request", (r) => !r.url().startsWith("data:") && new URL(r.url()).hostname !== "127.0.0.1" && wrong.push(`loads from elsewhere: ${r.url()}`));
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI} ${e.sample}`));
  });
  return Object.assign(page, { wrong });
}

/** Returns the serious findings of axe-core. The debugger evaluates it, so the policy of the page does not apply, as for an extension. */
export async function axe(page) {
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 4).map((n) => n.html.slice(0, 160) + " | " + (n.any[0]?.message ?? "")).join(" ;; ")}`);
}

/** Returns what is cut off at the edge of a narrow window, even if the page is no wider, and texts in columns that are too narrow. */
export const cutOff = (page) =>
  page.evaluate(() => {
    const found = document.documentElement.scrollWidth > innerWidth ? [`the page is ${document.documentElement.scrollWidth - innerWidth} pixels wider`] : [];
    for (const e of document.querySelectorAll("nav a, nav .tag, .tabs > *, main .button, main td, main th, main dd")) {
      const [box, text] = [e.getBoundingClientRect(), e.textContent.trim().slice(0, 60)];
      if (!box.width || !text) continue;
      if (box.left < -1 || box.right > innerWidth + 1) found.push(`beyond the edge: ${text}`);
      else if (box.width < 60 && box.height > 90) found.push(`squeezed: ${text}`);
    }
    return found;
  });

/** Returns a function that defines a test of one page. A test fails if something goes wrong in the browser, or if axe has a serious finding at
 * the end. SHOTS names a directory for screenshots of failed tests. */
export const specs = (world) => (name, body, options) =>
  test(name, async () => {
    const { engine, browser } = world();
    const page = await openPage(browser, options);
    try {
      await body(page, (hash) => page.goto(engine.url + "/" + hash));
      assert.deepEqual(await axe(page), [], "accessibility");
      assert.deepEqual(page.wrong, [], "errors in the browser");
    } catch (e) {
      if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/failed-${name.replace(/\W+/g, "-")}.png` });
      throw e;
    } finally {
      await page.context().close();
    }
  });
