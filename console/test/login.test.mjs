// The login with an issuer, what a role allows, and the logout.
import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { axe, openPage, startBrowser, startEngine } from "./world.mjs";

const client = "console";
const encode = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

/** Starts an issuer whose user, alice of the group support, logs in at once. The issuer checks PKCE. */
async function startIssuer() {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const open = new Map();
  const server = createServer(async (request, response) => {
    const url = new URL(request.url, issuer.url);
    const answer = (status, body) => response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
    if (url.pathname === "/.well-known/openid-configuration")
      return answer(200, { issuer: issuer.url, jwks_uri: `${issuer.url}/keys`, authorization_endpoint: `${issuer.url}/authorize`, token_endpoint: `${issuer.url}/token` });
    if (url.pathname === "/keys") return answer(200, { keys: [{ ...publicKey.export({ format: "jwk" }), kid: "1", use: "sig", alg: "ES256" }] });
    if (url.pathname === "/authorize") {
      const code = randomBytes(16).toString("hex");
      open.set(code, url.searchParams);
      const back = new URL(url.searchParams.get("redirect_uri"));
      back.search = new URLSearchParams({ code, state: url.searchParams.get("state") });
      return response.writeHead(302, { Location: back.href }).end();
    }
    let body = "";
    for await (const chunk of request) body += chunk;
    const sent = new URLSearchParams(body);
    const asked = open.get(sent.get("code"));
    open.delete(sent.get("code"));
    if (!asked || createHash("sha256").update(sent.get("code_verifier") ?? "").digest("base64url") !== asked.get("code_challenge")) return answer(400, { error: "invalid_grant" });
    const claims = { iss: issuer.url, aud: client, sub: "alice", groups: ["support"], nonce: asked.get("nonce"), exp: Math.floor(Date.now() / 1000) + 300 };
    const text = `${encode({ alg: "ES256", kid: "1", typ: "JWT" })}.${encode(claims)}`;
    answer(200, { access_token: "opaque", token_type: "Bearer", id_token: `${text}.${sign("sha256", Buffer.from(text), { key: privateKey, dsaEncoding: "ieee-p1363" }).toString("base64url")}` });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const issuer = { url: `http://127.0.0.1:${server.address().port}`, stop: () => server.close() };
  return issuer;
}

let issuer, engine, browser;
before(async () => {
  issuer = await startIssuer();
  engine = await startEngine("--auth.oidc.issuer", issuer.url, "--auth.oidc.audience", "api", "--auth.oidc.client-id", client);
  await engine.administer("grant", "add", "group:support", "support", "*");
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  await engine?.stop();
  issuer?.stop();
});

test("A user logs in, sees only what the role allows, and logs out", async () => {
  const page = await openPage(browser);
  try {
    await page.goto(engine.url + "/#/processes?ns=demo");
    const dialog = page.getByRole("dialog", { name: "Log in to Progressor" });
    await dialog.getByRole("link", { name: `Log in with ${new URL(issuer.url).host}` }).waitFor();
    assert.deepEqual(await axe(page), [], "accessibility of the login");
    await dialog.getByRole("link", { name: /Log in with/ }).click();
    await page.getByText("alice").waitFor();
    assert.equal(page.url(), engine.url + "/#/processes?ns=demo");
    const [cookie] = (await page.context().cookies()).filter((c) => c.name === "__Host-progressor");
    assert.ok(cookie.httpOnly && cookie.secure && cookie.sameSite === "Lax" && cookie.path === "/", JSON.stringify(cookie));
    assert.equal(await page.evaluate(() => document.cookie + JSON.stringify([localStorage, sessionStorage]).match(/pgl_.*/)), "null");

    // A user with the role support can operate processes, but cannot start them or change settings.
    await page.getByRole("button", { name: "Act on all matches…" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Start…" }).count(), 0);
    await page.goto(engine.url + "/#/namespaces");
    await page.getByRole("cell", { name: "built-in: echo" }).waitFor();
    assert.equal(await page.getByRole("button", { name: /New namespace|Configure|Pause/ }).count(), 0);
    await page.goto(engine.url + "/#/jobs?ns=demo");
    await page.getByRole("button", { name: "Pause jobs by name…" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Enqueue…" }).count(), 0);
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "command" }).fill("of one name");
    await page.getByText("Pause the jobs of one name").waitFor();
    await page.getByRole("combobox", { name: "command" }).fill("nqueue a");
    assert.equal(await page.getByText("Enqueue a job").count(), 0);
    await page.keyboard.press("Escape");

    await page.getByRole("button", { name: "Log out" }).click();
    await dialog.waitFor();
    assert.deepEqual((await page.context().cookies()).filter((c) => c.name.startsWith("__Host-")), []);
    assert.equal(await page.getByText("alice").count(), 0);
    assert.deepEqual(page.wrong, [], "errors in the browser");
  } finally {
    await page.context().close();
  }
});

test("An operator sees the login of a user, and ends it", async () => {
  const user = await openPage(browser);
  const page = await openPage(browser);
  try {
    await user.goto(engine.url + "/#/processes?ns=demo");
    await user.getByRole("link", { name: /Log in with/ }).click();
    await user.getByText("alice").waitFor();
    assert.equal(await user.getByRole("link", { name: "Access" }).count(), 0, "the role support does not manage keys");

    const token = (await engine.administer("key", "create", "--name", "operator", "--role", "root")).trim();
    await page.goto(engine.url + "/#/access?tab=logins");
    await page.getByRole("button", { name: "Use a token instead" }).click();
    await page.getByRole("textbox", { name: "Token" }).fill(token);
    await page.getByRole("button", { name: "Log in" }).click();
    const row = page.getByRole("row", { name: new RegExp(`user:${issuer.url}#alice`) });
    await row.waitFor();
    assert.deepEqual(await axe(page), [], "accessibility of the logins");
    await row.getByRole("button", { name: "End…", exact: true }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "End", exact: true }).click();
    await page.getByText(/1 login of user:.*#alice ended/).waitFor();
    await page.getByText("No logins").waitFor();
    await user.getByRole("dialog", { name: "Log in to Progressor" }).waitFor({ timeout: 60_000 }); // the page reads the permissions every 30 s
    assert.deepEqual(page.wrong, [], "errors in the browser");
  } finally {
    await page.context().close();
    await user.context().close();
  }
});

test("A token works in place of a login", async () => {
  const page = await openPage(browser);
  try {
    const token = (await engine.administer("key", "create", "--name", "test", "--role", "root")).trim();
    await page.goto(engine.url + "/#/processes?ns=demo");
    const dialog = page.getByRole("dialog", { name: "Log in to Progressor" });
    await dialog.getByRole("button", { name: "Use a token instead" }).click();
    await dialog.getByLabel("Token").fill(token);
    await dialog.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("button", { name: "Start…" }).waitFor();
    await page.getByText(/^key:/).waitFor();
    await page.getByRole("button", { name: "Log out" }).click();
    await dialog.waitFor();
    assert.deepEqual(page.wrong, [], "errors in the browser");
  } finally {
    await page.context().close();
  }
});

test("A late answer to a request without the token does not ask for it again", async () => {
  const page = await openPage(browser);
  try {
    const token = (await engine.administer("key", "create", "--name", "late", "--role", "root")).trim();
    let logIn;
    const loggedIn = new Promise((done) => (logIn = done));
    await page.route("**/whoami", async (route) => {
      if (route.request().headers().authorization) return route.continue();
      const response = await route.fetch();
      await loggedIn;
      await route.fulfill({ response });
    });
    await page.goto(engine.url + "/#/processes?ns=demo");
    const dialog = page.getByRole("dialog", { name: "Log in to Progressor" });
    await dialog.getByRole("button", { name: "Use a token instead" }).click();
    await dialog.getByLabel("Token").fill(token);
    const listed = page.waitForResponse((answer) => answer.url().endsWith("/ListProcesses") && answer.ok());
    await dialog.getByRole("button", { name: "Log in" }).click();
    await listed;
    logIn();
    await page.getByText(/^key:/).waitFor();
    assert.equal(await dialog.count(), 0);
    assert.deepEqual(page.wrong, [], "errors in the browser");
  } finally {
    await page.context().close();
  }
});

test("The inbox offers only the waits that the user may answer", async () => {
  const page = await openPage(browser);
  try {
    const [root, asker] = await Promise.all(["root", "client"].map(async (role) => (await engine.administer("key", "create", "--name", role, "--role", role, ...(role === "root" ? [] : ["--namespaces", "demo"]))).trim()));
    const post = async (method, body) => {
      const answer = await fetch(`${engine.url}/progressor.v1.FlowService/${method}`, { method: "POST", headers: { "Content-Type": "application/json", Authorization: `Bearer ${root}` }, body: JSON.stringify(body) });
      assert.equal(answer.status, 200, await answer.text());
    };
    const wait = (stepId, title, assignees) => ({ stepId, wait: { kind: "KIND_HUMAN", title, assignees } });
    await post("PutTemplate", { template: { namespace: "demo", type: "ask", stepOrder: "STEP_ORDER_GRAPH", steps: [wait("anyone", "For anyone", []), wait("sales", "For sales", ["sales"])] } });
    await post("StartRun", { namespace: "demo", type: "ask", runId: "asks" });
    await page.goto(engine.url + "/#/waits?ns=demo");
    const dialog = page.getByRole("dialog", { name: "Log in to Progressor" });
    await dialog.getByRole("button", { name: "Use a token instead" }).click();
    await dialog.getByLabel("Token").fill(asker);
    await dialog.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("button", { name: "Answer For anyone" }).waitFor();
    assert.equal(await page.getByRole("row", { name: /For sales/ }).count(), 0);
    await page.getByRole("button", { name: "For everyone" }).click();
    await page.getByRole("row", { name: /For sales/ }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Answer For sales" }).count(), 0);
    assert.deepEqual(page.wrong, [], "errors in the browser");
  } finally {
    await page.context().close();
  }
});
