// Keys, grants, and who may see them.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually } from "./seed.mjs";
import { axe, fits, openPage, specs, startBrowser, startEngine } from "./world.mjs";

let engine, browser, root;
const spec = specs(() => ({ engine, browser }));

/** Creates a key with the command line, and returns its token. */
const key = async (...flags) => (await engine.administer("key", "create", ...flags)).trim();
const idOf = (token) => token.split("_")[1];

/** Sends a request with a token. */
async function ask(token, method, body = {}) {
  const answer = await fetch(`${engine.url}/progressor.v1.${method}`, { method: "POST", headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` }, body: JSON.stringify(body) });
  return { status: answer.status, ...(await answer.json()) };
}
const keyOf = async (id) => (await ask(root, "AccessService/ListKeys", { pageSize: 200 })).keys.find((k) => k.keyId === id);

/** Opens a page of the console with a token. */
async function open(page, go, hash, token = root) {
  await go(hash);
  await page.getByRole("textbox", { name: "Token" }).fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText(`key:${idOf(token)}`).first().waitFor();
}
const tokenOn = (page) => page.getByRole("dialog").getByRole("textbox", { name: "Token" }).inputValue();

before(async () => {
  engine = await startEngine("--auth.mode", "required");
  root = await key("--name", "operator", "--role", "root");
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

spec("A key is created with its roles, and its token is shown once", async (page, go) => {
  await open(page, go, "#/overview");
  await page.keyboard.press("g");
  await page.keyboard.press("a");
  await page.getByRole("heading", { name: "Access" }).waitFor();
  await page.getByRole("row", { name: /operator/ }).getByText("you use it").waitFor();
  await page.getByRole("button", { name: "Create a key…" }).click();
  const dialog = page.getByRole("dialog");
  const create = dialog.getByRole("button", { name: "Create", exact: true });
  const refuses = async (label) => {
    await create.click();
    await dialog.getByLabel(label).and(dialog.locator(":focus")).waitFor();
  };
  await dialog.getByLabel("Name", { exact: true }).fill("operator");
  await dialog.getByText("Keys with the same name count as one client").waitFor();
  await dialog.getByLabel("Name", { exact: true }).fill("mailer");
  await refuses("Namespaces"); // it is required
  await dialog.getByLabel("Namespaces").fill("shop/*, a*b");
  await dialog.getByText("names, or prefixes with *").waitFor();
  await refuses("Namespaces");
  await dialog.getByLabel("Namespaces").fill("shop/*, billing");
  await dialog.getByLabel("Valid for").fill("soon");
  await refuses("Valid for");
  await dialog.getByLabel("Valid for").fill("90d");
  await dialog.getByRole("button", { name: "+ Another role" }).click();
  await dialog.getByLabel("Role 2").selectOption("worker");
  await dialog.getByLabel("Namespaces 2").fill("*");
  await dialog.getByLabel("Job names 2").fill("mail-*");
  assert.deepEqual(await axe(page), [], "accessibility of the form");
  await create.click();

  await page.getByRole("dialog", { name: "The key mailer is created" }).waitFor();
  const token = await tokenOn(page);
  assert.match(token, /^pgr_[a-z0-9]+_[0-9a-f]{64}$/);
  assert.deepEqual(await axe(page), [], "accessibility of the token");
  await page.keyboard.press("Escape");
  await page.mouse.click(5, 5);
  await dialog.getByRole("button", { name: "Copy the token" }).click();
  await dialog.getByText("Copied.").waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), token);
  await dialog.getByRole("button", { name: "Done" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.ok(!(await page.content()).includes(token), "the page still has the token");
  assert.ok(!(await page.evaluate(() => JSON.stringify([localStorage, sessionStorage]))).includes(token));

  const row = page.getByRole("row", { name: /mailer/ });
  await row.getByText("client in shop/*").waitFor();
  await row.getByText("client in billing").waitFor();
  await row.getByText("worker of jobs mail-* in all namespaces").waitFor();
  await row.getByText("in 89 d").waitFor();
  await row.getByText("never").waitFor(); // used
  const whoami = await fetch(engine.url + "/whoami", { headers: { Authorization: `Bearer ${token}` } });
  assert.equal(await whoami.text(), `key:${idOf(token)}\nclient billing\nclient shop/*\nworker:mail-* *\n`);
  await eventually("the time of the last use is shown", async () => (await keyOf(idOf(token))).usedTime);
  await page.keyboard.press("r");
  await row.getByText("never").waitFor({ state: "detached" });
});

spec("A key is rotated and revoked after a confirmation", async (page, go) => {
  const token = await key("--name", "billing", "--role", "client", "--namespaces", "billing/*", "--expires", "240h");
  await open(page, go, "#/access");
  const row = page.getByRole("row", { name: new RegExp(idOf(token)) });
  await row.getByRole("button", { name: "Rotate…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Empty: 10d, like the old key.").waitFor();
  await dialog.getByLabel("The old key stays valid for").fill("x");
  await dialog.getByRole("button", { name: "Rotate", exact: true }).click();
  await dialog.getByLabel("The old key stays valid for").and(dialog.locator(":focus")).waitFor();
  await dialog.getByLabel("The old key stays valid for").fill("2h");
  await dialog.getByRole("button", { name: "Rotate", exact: true }).click();
  await page.getByRole("dialog", { name: "The key billing is rotated" }).waitFor();
  const next = await tokenOn(page);
  await dialog.getByRole("button", { name: "Done" }).click();
  for (const t of [token, next]) assert.equal((await fetch(engine.url + "/whoami", { headers: { Authorization: `Bearer ${t}` } })).status, 200);
  const old = page.getByRole("row", { name: new RegExp(`replaced by ${idOf(next)}`) });
  await old.getByText("Rotated").waitFor();
  await old.getByText(/^in 1 h 59 min/).waitFor();
  assert.equal(await old.getByRole("button", { name: "Rotate…" }).count(), 0, "a key is rotated once");

  const fresh = page.getByRole("row", { name: new RegExp(`billing ${idOf(next)}`) });
  await fresh.getByRole("button", { name: "Revoke…" }).click();
  await dialog.getByText("It cannot become valid again").waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  assert.equal((await keyOf(idOf(next))).state, "KEY_STATE_VALID");
  await fresh.getByRole("button", { name: "Revoke…" }).click();
  await dialog.getByRole("button", { name: "Revoke", exact: true }).click();
  await page.getByText("billing is revoked.").waitFor();
  await fresh.waitFor({ state: "detached" });
  await page.getByLabel("Show").selectOption({ label: "all keys" });
  await fresh.getByText("Revoked", { exact: true }).waitFor();
  assert.equal(await fresh.getByRole("button").count(), 0);
});

spec("A grant is added and removed", async (page, go) => {
  const token = await key("--name", "viewer", "--role", "viewer", "--namespaces", "a");
  await open(page, go, "#/access?tab=grants");
  await page.getByRole("button", { name: "Add a grant…" }).click();
  const dialog = page.getByRole("dialog");
  const add = dialog.getByRole("button", { name: "Add", exact: true });
  await dialog.getByLabel("For").selectOption({ label: "a user" });
  await dialog.getByLabel("User").fill("alice");
  await dialog.getByLabel("Role").selectOption("support");
  await dialog.getByLabel("Namespaces").fill("shop/*");
  await add.click();
  await dialog.getByText("must be key:ID").waitFor();
  await dialog.getByLabel("For").selectOption({ label: "all users of a group" });
  await dialog.getByLabel("Group").fill("staff:support");
  await add.click();
  const row = page.getByRole("row", { name: /group:staff:support/ });
  await row.getByText("support in shop/*").waitFor();
  await row.getByText(`key:${idOf(root)}`).waitFor(); // added by
  await row.getByRole("button", { name: "Remove…" }).click();
  await dialog.getByRole("button", { name: "Remove", exact: true }).click();
  await page.getByText("group:staff:support no longer has the role support.").waitFor();
  await row.waitFor({ state: "detached" });

  // A key gets another role, and the grants of this key are shown alone.
  await page.getByRole("tab", { name: "Keys" }).click();
  await page.getByRole("row", { name: new RegExp(idOf(token)) }).getByRole("button", { name: "Add a role…" }).click();
  await dialog.getByLabel("Role").selectOption("admin");
  await dialog.getByLabel("Namespaces").fill("b");
  await add.click();
  await page.getByRole("row", { name: new RegExp(idOf(token)) }).getByText("admin in b").waitFor();
  await page.getByRole("tab", { name: "Grants" }).click();
  await page.getByRole("button", { name: `key:${idOf(token)}` }).first().click();
  await page.getByText(`only the grants of key:${idOf(token)}`).waitFor();
  await page.getByRole("row", { name: /viewer in a/ }).waitFor();
  await page.getByRole("row", { name: /operator/ }).waitFor({ state: "detached" });
});

spec("Users without the permission do not see the page", async (page, go) => {
  const token = await key("--name", "support", "--role", "support", "--namespaces", "*");
  await open(page, go, "#/overview", token);
  await page.getByRole("link", { name: "Nodes", exact: true }).waitFor();
  assert.equal(await page.getByRole("link", { name: "Access", exact: true }).count(), 0);
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "command" }).fill("Access");
  assert.equal(await page.getByRole("option", { name: /^Access/ }).count(), 0);
  await page.keyboard.press("Escape");
  await go("#/access");
  await page.getByRole("heading", { name: "You may not see this page" }).waitFor();
  assert.equal(await page.getByText("operator").count(), 0);
  for (const method of ["ListKeys", "ListGrants", "ListConsoleLogins"]) assert.equal((await ask(token, `AccessService/${method}`)).code, "permission_denied");
});

spec("Users of some namespaces see no rates and no nodes", async (page, go) => {
  const token = await key("--name", "support-of-one", "--role", "support", "--namespaces", "demo");
  await open(page, go, "#/overview", token);
  await page.getByText("Backlog").first().waitFor();
  for (const text of ["Tasks per second", "Timer lateness", "Processing time", "The first sample arrives"]) {
    assert.equal(await page.getByText(text).count(), 0, text);
  }
  assert.equal(await page.getByRole("link", { name: "Nodes" }).count(), 0);
  assert.equal(await page.getByRole("heading", { name: "Nodes" }).count(), 0);
});

spec("Workers show the client to which their ID belongs", async (page, go) => {
  const token = await key("--name", "resizer", "--role", "worker", "--namespaces", "pulled");
  await ask(root, "NamespaceService/PutNamespace", { namespace: { namespace: "pulled", processor: { pull: {} } } });
  assert.equal((await ask(token, "WorkerService/Poll", { namespaces: ["pulled"], workerId: "host-1" })).status, 200);
  await open(page, go, "#/workers?ns=pulled");
  await page.getByRole("row", { name: /host-1/ }).getByText("key resizer").waitFor();
});

spec("Keys and grants fit on a phone and are readable in the dark theme", async (page, go) => {
  await key("--name", "a-service-with-a-long-name", "--role", "client,worker:a-job-with-a-long-name-*", "--namespaces", "a/namespace/with/a/long/name/*");
  await open(page, go, "#/access");
  await page.keyboard.press("t");
  for (const [tab, text] of [["Keys", "a-service-with-a-long-name"], ["Grants", "Added by"], ["Console logins", "No logins"]]) {
    await page.getByRole("tab", { name: tab }).click();
    await page.getByText(text).first().waitFor({ state: tab === "Grants" ? "attached" : "visible" });
    await fits(page, tab);
  }
  await page.getByRole("tab", { name: "Keys" }).click();
  await page.getByRole("button", { name: "Create a key…" }).click();
  await fits(page, "the form");
}, { viewport: { width: 390, height: 844 } });

test("An engine that does not authenticate says so, and offers no changes", async () => {
  const open = await startEngine();
  let page;
  try {
    page = await openPage(browser);
    await page.goto(open.url + "/#/access");
    await page.getByText("This engine does not check who its clients are").waitFor();
    await page.getByText("No valid keys").waitFor();
    assert.equal(await page.getByRole("button", { name: "Create a key…" }).count(), 0);
    await page.getByRole("tab", { name: "Grants" }).click();
    await page.getByText("No grants yet").waitFor();
    assert.equal(await page.getByRole("button", { name: "Add a grant…" }).count(), 0);
    assert.deepEqual(await axe(page), [], "accessibility");
    assert.deepEqual(page.wrong, [], "errors in the browser");
  } finally {
    await page?.context().close().catch(() => {}); // go on: the engine must stop, or the run of the tests does not end
    await open.stop();
  }
});
