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

/** Starts `progressor dev` on its own port. When stop returns, the program has ended. */
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

// One renderer without threads for compilation needs a sixth less CPU time.
const launch = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
      "--js-flags=--single-threaded", "--in-process-gpu", "--renderer-process-limit=1", "--disable-site-isolation-trials", "--disable-features=IsolateOrigins,site-per-process"],
  });

/** Starts Chromium. If Chromium crashes before a test can use it, this starts it again, once. */
export const startBrowser = () => launch().catch(launch);

/** Opens a page that records what goes wrong: errors, warnings, loads from other hosts, and violations of the content security policy. */
export async function openPage(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, locale: "en-US", timezoneId: "Europe/Berlin", reducedMotion: "reduce", permissions: ["clipboard-read", "clipboard-write"], ...options });
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

/** Returns the findings of axe-core, of any impact, when the page has loaded. The debugger
 * evaluates axe-core, so the content security policy of the page does not apply, as with an
 * extension. */
export async function axe(page) {
  await page.locator("h1").first().waitFor({ state: "attached" });
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 4).map((n) => n.html.slice(0, 160) + " | " + (n.any[0]?.message ?? "")).join(" ;; ")}`);
}

/** Returns what is cut off at the edge of a narrow window, even if the page is no wider than the window, and texts in columns that are too narrow. */
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

/** Returns the words of tables and descriptions that continue on the next line. Words with a hyphen, a slash, a colon or more than 20 characters may do so. */
const brokenWords = (page) =>
  page.evaluate(() => {
    const found = [];
    for (const cell of document.querySelectorAll("main td, main th, main dd")) {
      const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) {
        for (const { index, 0: word } of texts.currentNode.data.matchAll(/\S+/g)) {
          if (word.length > 20 || /[-/:]/.test(word)) continue;
          const range = document.createRange();
          range.setStart(texts.currentNode, index);
          range.setEnd(texts.currentNode, index + word.length);
          const tops = [...range.getClientRects()].filter((r) => r.width > 0).map((r) => r.top);
          if (Math.max(...tops) - Math.min(...tops) > 4) found.push(`broken word: ${word}`);
        }
      }
    }
    return found;
  });

/** Checks a page on a phone and at three widths of a desktop: nothing is cut off, and no word is broken. On the phone and at 1280 pixels, axe
 * finds nothing in either theme. At 1024 pixels, a table may scroll. If scrolls is true, a table may scroll on all desktops. */
export async function fits(page, what, { scrolls = false } = {}) {
  const was = page.viewportSize();
  for (const [width, height] of [[390, 844], [1024, 768], [1280, 860], [1440, 900]]) {
    await page.setViewportSize({ width, height });
    // Charts get their new size in the next frame.
    await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
    const where = `${what}, ${width} pixels wide`;
    const cut = (await cutOff(page)).filter((found) => width < 1024 || found.startsWith("the page") || (found.startsWith("beyond") && width > 1024 && !scrolls));
    assert.deepEqual([...cut, ...(await brokenWords(page))], [], where);
    if (![390, 1280].includes(width)) continue;
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      assert.deepEqual(await axe(page), [], `${where}, ${colorScheme}`);
    }
  }
  await page.setViewportSize(was);
}

/** Returns a function that defines a test of one page. A test fails if something goes wrong in the browser, or if axe finds anything at
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
