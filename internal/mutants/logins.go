package main

const (
	consoleCode   = "engine/auth/oidc/code.go"
	consoleLogins = "engine/auth/logins.go"
	consoleCookie = "engine/rpc/login.go"
	loginsSQL     = "sql/console_logins.sql"
)

// loginMutants remove checks of logins to the console.
var loginMutants = []mutant{
	{
		name: "login-state-unchecked", breaks: "the answer of an issuer logs in only the browser that asked for it",
		file: consoleCode, old: "subtle.ConstantTimeCompare([]byte(answer.Get(\"state\")), []byte(a.State)) != 1 {",
		planted:  "false {",
		packages: oidcTests, run: "TestAnswersOfOtherLogins",
	},
	{
		name: "login-at-any-issuer", breaks: "an answer belongs to a login at this issuer",
		file: consoleCode, old: "a.Issuer != i.config.Issuer ||", planted: "false ||",
		packages: oidcTests, run: "TestAnswersOfOtherLogins",
	},
	{
		name: "login-nonce-unchecked", breaks: "the token of an issuer must be for this login",
		file: consoleCode, old: "subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(a.Nonce)) != 1",
		planted:  "false",
		packages: oidcTests, run: "TestTokensOfLogins",
	},
	{
		name: "login-without-pkce", breaks: "the issuer gives the token only to the engine that began the login",
		file: consoleCode, old: ", code, oauth2.VerifierOption(a.Verifier))", planted: ", code)",
		packages: oidcTests, run: "TestCodeFlow",
	},
	{
		name: "login-code-for-other-issuer", breaks: "the code of one issuer is not sent to another one",
		file: consoleCode, old: "from != i.config.Issuer && (from != \"\" || document.NamesIssuer)",
		planted:  "from == \"-\" && document.NamesIssuer",
		packages: oidcTests, run: "TestAnswersOfOtherLogins",
	},
	{
		name: "login-issuer-unnamed", breaks: "an issuer that names itself in its answers does so in all of them",
		file: consoleCode, old: "(from != \"\" || document.NamesIssuer)", planted: "(from != \"\" || document == nil)",
		packages: oidcTests, run: "TestAnswersOfOtherLogins",
	},
	{
		name: "login-any-party", breaks: "a token that was issued to another client is rejected at a login",
		file: consoleCode, old: "claims.Party != i.config.ClientID", planted: "false",
		packages: oidcTests, run: "TestTokensOfLogins",
	},
	{
		name: "login-in-the-clear", breaks: "codes and browsers are sent to an issuer by https",
		file: consoleCode, old: "i.keys.checkEndpoint(name, text); err != nil {",
		planted:  "i.keys.checkEndpoint(name, text); false {",
		packages: oidcTests, run: "TestAddressesOfLogins",
	},
	{
		name: "login-page-shared", breaks: "the answers of different issuers go to different pages",
		file: oidcConfig, old: "(c.Name == \"\" || c.Name == other.Name)", planted: "false",
		packages: oidcTests, run: "TestConfigurationIsChecked",
	},
	{
		name: "login-to-any-page", breaks: "a login leads to a page of the console",
		file: consoleLogins, old: "len(page) > maxPage || !pageRule.MatchString(page):",
		planted:  "len(page) > maxPage:",
		packages: "./engine/rpc", run: "TestPagesOfTheLogin",
	},
	{
		name: "login-open-redirect", breaks: "a login leads to the console",
		file: consoleLogins, old: "return token, a.logins.URL + \"/#\" + begun.Page, nil",
		planted:  "return token, begun.Page, nil",
		packages: "./engine/auth", run: "TestPagesOfLogins",
	},
	{
		name: "login-expired", breaks: "a login that has expired is rejected although it is cached",
		file: consoleLogins, old: "|| s.principal.expired(a.now()) {", planted: "{",
		packages: "./engine/auth", run: "TestLoginsEnd",
	},
	{
		name: "login-stream-outlives", breaks: "a stream ends with its login",
		file: "engine/auth/authenticator.go", old: "p.HasLogin() && (!s.valid || s.principal.expired(a.now()))",
		planted:  "false",
		packages: "./engine/auth", run: "TestLoginsEnd",
	},
	{
		name: "login-of-a-former-issuer", breaks: "a login ends when its issuer is removed from the configuration",
		file: consoleLogins, old: " || !a.logins.accept(row):", planted: ":",
		packages: "./engine/auth", run: "TestLoginsEnd",
	},
	{
		name: "login-secret-unchecked", breaks: "the ID of a login without its secret does not authenticate",
		file: consoleLogins, old: "subtle.ConstantTimeCompare(hash, row.Hash) != 1 ||",
		planted:  "subtle.ConstantTimeCompare(hash, row.Hash) > 1 ||",
		packages: "./engine/auth", run: "TestLogins$",
	},
	{
		name: "login-used-by-its-id", breaks: "the ID of a login does not keep it alive",
		file: loginsSQL, old: "     AND l.secret_hash = @secret_hash\n",
		planted:  "     AND octet_length(@secret_hash::bytea) = 32\n",
		packages: "./storage", run: "TestConsoleLogins$",
	},
	{
		name: "login-of-former-groups", breaks: "a login does not keep groups that may be another issuer's",
		file: consoleLogins, old: "groupPrefix+i.GroupPrefix())", planted: "groupPrefix)",
		packages: "./engine/auth", run: "TestLoginsEnd",
	},
	{
		name: "login-logout-undone", breaks: "a read that began before a logout does not undo it",
		file: consoleLogins, old: "	defer func() { <-e.reading }()\n	if err := remove()",
		planted:  "	<-e.reading\n	if err := remove()",
		packages: "./engine/auth", run: "TestLogoutDuringARead",
	},
	{
		name: "login-not-replaced", breaks: "a login replaces that of the same browser",
		file: consoleLogins, old: "l.FormerID, l.FormerHash = formerID, hash[:]", planted: "l.FormerID = formerID",
		packages: "./engine/auth", run: "TestLoginsInOneBrowser",
	},
	{
		name: "login-replaced-by-id", breaks: "the ID of a login does not end it",
		file: loginsSQL, old: "     AND x.secret_hash = @former_hash",
		planted:  "     AND '\\x'::bytea <> @former_hash",
		packages: "./storage", run: "TestConsoleLoginsOfABrowser",
	},
	{
		name:   "login-end-hidden-by-limit",
		breaks: "a browser learns that its login has ended, even at an address with too many failures",
		file:   "engine/auth/authenticator.go", old: "	case errors.Is(err, ErrLogin): // a browser",
		planted:  "	case left && errors.Is(err, ErrLogin): // a browser",
		packages: "./engine/auth", run: "TestEndedLoginsAtASharedAddress",
	},
	{
		name: "login-not-ended", breaks: "a logout ends the login at once on its engine",
		file: consoleLogins, old: "	e.state.Store(&state{read: a.now()})\n", planted: "",
		packages: "./engine/auth", run: "TestLogins$",
	},
	{
		name: "login-guesses-unlimited", breaks: "failed logins of an address are limited",
		file: consoleLogins, old: "!a.logins.exchanges.take(address)", planted: "false",
		packages: "./engine/auth", run: "TestFailedLoginsAreLimited",
	},
	{
		name: "login-invalid-uses-exchanges", breaks: "an answer without a login does not use up exchanges",
		file: consoleLogins, old: "if !ok || issuer.Check(begun.Attempt, answer) != nil {", planted: "if !ok {",
		packages: "./engine/auth", run: "TestFailedLoginsAreLimited",
	},
	{
		name:   "login-exchanges-unlimited",
		breaks: "the number of codes that a node exchanges at the same time is limited",
		file:   consoleLogins, old: "		return oidc.Identity{}, ErrManyLogins\n	}\n	who, err :=",
		planted:  "	}\n	who, err :=",
		packages: "./engine/auth", run: "TestExchangesAtTheSameTime",
	},
	{
		name: "login-reads-keys", breaks: "the limits of keys do not stop logins, and logins do not use them up",
		file: consoleLogins, old: "	if !a.logins.exchanges.take(address) {\n",
		planted:  "	if a.limitReads(address) != nil {\n",
		packages: "./engine/auth", run: "TestLoginsAtASharedAddress|TestForgedAttempts",
	},
	{
		name: "login-no-answer-uncounted", breaks: "invented codes count as failures if the issuer does not answer",
		file: "engine/auth/authenticator.go", old: "if errors.Is(err, ErrNoAnswer) {", planted: "if false {",
		packages: "./engine/auth", run: "TestForgedAttempts",
	},
	{
		name: "login-attempt-old", breaks: "an attempt to log in is valid for 10 minutes",
		file: consoleLogins, old: "age <= AttemptTime && ", planted: "age <= 100*AttemptTime && ",
		packages: "./engine/auth", run: "TestOldAttempts",
	},
	{
		name: "login-ended-by-other-tab", breaks: "a login that another tab has replaced does not end the new login",
		file: consoleCookie, old: "if !errors.Is(err, oidc.ErrState) && !limited(err) {",
		planted:  "if errors.Is(err, oidc.ErrState) || !limited(err) {",
		packages: "./engine/rpc", run: "TestLoginsInTwoTabs",
	},
	{
		name: "login-uses-up-keys", breaks: "the start of a login does not use up reads of keys",
		file: consoleLogins, old: "	to, begun, err := issuer.Begin(ctx, redirect)\n",
		planted:  "	a.unknown.Allow()\n	to, begun, err := issuer.Begin(ctx, redirect)\n",
		packages: "./engine/auth", run: "TestManyLoginsAreBegun",
	},
	{
		name: "logins-per-hour-unlimited", breaks: "a user has a limited number of logins per hour",
		file: consoleLogins, old: "if !a.logins.hourly.limiter(names[0]).Allow() {", planted: "if false {",
		packages: "./engine/auth", run: "TestManyLoginsOfAUser",
	},
	{
		name: "cookie-cross-origin", breaks: "the cookie of a login counts only for the page of the console",
		file: consoleCookie, old: "		len(origin) != 1 || origin[0] != a.Origin(),\n",
		planted:  "		len(origin) > 100,\n",
		packages: "./engine/rpc", run: "TestCookieOfOthers",
	},
	{
		name: "cookie-of-forms", breaks: "the cookie of a login counts only for JSON",
		file:     consoleCookie,
		old:      "err != nil || kind != \"application/json\" && kind != \"application/connect+json\",",
		planted:  "err != nil && kind == \"-\",",
		packages: "./engine/rpc", run: "TestCookieOfOthers",
	},
	{
		name: "cookie-get", breaks: "the cookie of a login does not count for a GET",
		file: consoleCookie, old: ", r.Method != http.MethodPost,\n", planted: ",\n",
		packages: "./engine/rpc", run: "TestCookieOfOthers",
	},
	{
		name: "cookie-and-token", breaks: "a request with a cookie and a token is rejected",
		file: consoleCookie, old: "len(r.Header[\"Authorization\"]) > 0 || certificateURI(r) != \"\" {",
		planted:  "certificateURI(r) != \"\" {",
		packages: "./engine/rpc", run: "TestCookieOfOthers",
	},
	{
		name: "cookie-and-certificate", breaks: "a request with a cookie and a certificate is rejected",
		file: consoleCookie, old: " || certificateURI(r) != \"\" {", planted: " {",
		packages: "./engine/rpc", run: "TestCookieAndCertificate",
	},
	{
		name: "cookie-readable", breaks: "scripts cannot read the cookie of a login",
		file: consoleCookie, old: "Secure: true, HttpOnly: true,", planted: "Secure: true,",
		packages: "./engine/rpc", run: "TestCookiesOfLogins",
	},
	{
		name: "cookie-attempt-kept", breaks: "an attempt to log in is used once",
		file: consoleCookie, old: "	setCookie(w, attemptCookie, \"\", -1) // an answer is used once\n", planted: "",
		packages: "./engine/rpc", run: "TestConsoleLogin$",
	},
	{
		name: "login-wrong-permissions", breaks: "the console gets the permissions of its user",
		file: "engine/rpc/authenticate.go", old: "names[n] = auth.PermissionName(permissions[n])",
		planted:  "names[n] = auth.PermissionName(permissions[0])",
		packages: "./engine/rpc", run: "TestConsoleLogin$",
	},
	{
		name: "logins-unbounded", breaks: "a user has at most 20 logins",
		file: loginsSQL, old: "WHERE others.place > ", planted: "WHERE others.place > 1000 + ",
		packages: "./storage", run: "TestConsoleLoginsOfAUser",
	},
	{
		name: "logins-end-unaudited", breaks: "the audit log records that an operator ended a login",
		file: "storage/console_logins.go", old: "		for _, id := range ids {\n",
		planted:  "		for _, id := range ids[:0] {\n",
		packages: "./cmd/progressor", run: "TestConsoleLogin$",
	},
	{
		name: "logins-idle-kept", breaks: "a login that is not used ends",
		file: loginsSQL, old: "     AND l.used_time > statement_timestamp() -",
		planted:  "     AND l.used_time > '-infinity' +",
		packages: "./storage", run: "TestConsoleLogins$",
	},
	{
		name: "logins-expired-kept", breaks: "logins that have expired are deleted",
		file: loginsSQL, old: "WHERE x.expire_time <= statement_timestamp()", planted: "WHERE x.expire_time IS NULL",
		packages: "./storage", run: "TestExpiredLoginsAreDeleted",
	},
	{
		name:   "login-replacement-unaudited",
		breaks: "the audit log records the end of a login that another one replaces",
		file:   "storage/console_logins.go", old: "range ended {", planted: "range ended[:0] {",
		packages: "./storage", run: "TestConsoleLoginsOfABrowser",
	},
	{
		name: "login-uninterrupted", breaks: "a user can interrupt the requests that begin a login",
		file: "cmd/progressor/internal/cli/login/issuer.go",
		old:  "client.Transport = interruptible{ctx, client.Transport}", planted: "",
		packages: "./cmd/progressor/internal/cli/login", run: "TestBeginIsInterrupted",
	},
	{
		name: "login-failed-unrevoked", breaks: "the refresh token of a failed login is revoked",
		file: "cmd/progressor/internal/cli/admin/login.go", old: "		abandon(ctx, a, l)\n", planted: "",
		packages: "./cmd/progressor", run: "TestLoginFails",
	},
	{
		name: "root-key-of-anyone", breaks: "another user cannot choose the root key",
		file: "engine/auth/token.go", old: "if ok && stat.Uid != 0", planted: "if false && ok && stat.Uid != 0",
		packages: "./engine/auth", run: "TestRootKey",
	},
}
