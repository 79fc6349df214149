package main

const (
	oidcTests    = "./engine/auth/oidc"
	oidcIssuers  = "engine/auth/oidc/issuers.go"
	oidcKeys     = "engine/auth/oidc/keys.go"
	oidcClaims   = "engine/auth/oidc/claims.go"
	oidcConfig   = "engine/auth/oidc/config.go"
	usersOfToken = "engine/auth/users.go"
	loginTests   = "./cmd/progressor/internal/cli/login"
	loginFile    = "cmd/progressor/internal/cli/login/file.go"
	loginIssuer  = "cmd/progressor/internal/cli/login/issuer.go"
	loginSource  = "cmd/progressor/internal/cli/login/source.go"
	loginCommand = "cmd/progressor/internal/cli/admin/login.go"
)

// oidcMutants remove checks of JSON Web Tokens, and of logins of the command line.
var oidcMutants = []mutant{
	{
		name: "oidc-login-readable", breaks: "logins that others can read are rejected",
		file: loginFile, old: "mode&0o077 != 0", planted: "mode == 0",
		packages: "./cmd/progressor", run: "TestLoginFails",
	},
	{
		name: "oidc-login-for-any-engine", breaks: "the token of a login is sent to its engine only",
		file: loginFile, old: `return strings.TrimRight(strings.ToLower(engine), "/")`,
		planted:  "return strings.ToLower(engine[:0])",
		packages: "./cmd/progressor", run: "TestLogin",
	},
	{
		name: "oidc-refreshed-twice", breaks: "only one of several commands refreshes a login",
		file:     loginSource,
		old:      "		case l.fresh(): // another command has refreshed it\n			return nil\n",
		planted:  "",
		packages: "./cmd/progressor", run: "TestLoginIsRefreshed",
	},
	{
		name: "oidc-logout-unrevoked", breaks: "logout revokes the refresh token",
		file: loginCommand, old: "supported, err := l.Revoke(ctx)", planted: "supported, err := true, error(nil)",
		packages: "./cmd/progressor", run: "TestLogin$",
	},
	{
		name: "oidc-login-unrevoked", breaks: "login revokes the last refresh token before it gets a new one",
		file: loginCommand, old: "	} else if ok {", planted: "	} else if false && ok {",
		packages: "./cmd/progressor", run: "TestLoginIsRefreshed",
	},
	{
		name: "oidc-refresh-interrupted", breaks: "a new refresh token is stored even if its request has ended",
		file: loginIssuer, old: "context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)",
		planted:  "context.WithTimeout(ctx, requestTimeout)",
		packages: loginTests, run: "TestRefreshOutlivesItsRequest",
	},
	{
		name: "oidc-refresh-token-lost", breaks: "a new refresh token is stored even if the ID token is missing",
		file: loginSource, old: "		all.Logins[key(s.engine)] = l\n		return nil\n",
		planted:  "		all.Logins[key(s.engine)] = l\n		return failed\n",
		packages: loginTests, run: "TestRefreshWithoutIDToken",
	},
	{
		name: "oidc-login-in-the-clear", breaks: "the token of a login is not sent to another machine without TLS",
		file: loginCommand, old: "!c.AllowHTTP && !login.Private(c.Engine())", planted: "false",
		packages: "./cmd/progressor", run: "TestLoginFails",
	},
	{
		name: "oidc-login-redirected", breaks: "a refresh token is not sent to the target of a redirect",
		file: loginIssuer, old: "return errRedirect }", planted: "return nil }",
		packages: loginTests, run: "TestRedirectsOfAnIssuer",
	},
	{
		name: "oidc-login-large-answers", breaks: "a command does not read large answers of an issuer",
		file: loginIssuer, old: "limitedBodies{transport}", planted: "transport",
		packages: loginTests, run: "TestAnswersOfAnIssuer",
	},
	{
		name: "oidc-authorities-relative", breaks: "the authorities of an issuer are found from any directory",
		file: loginCommand, old: "		issuer.CAFile = path\n", planted: "		_ = path\n",
		packages: "./cmd/progressor", run: "TestLoginWithAuthorities",
	},
	{
		name: "oidc-lock-blocks", breaks: "a request waits for the lock of the logins no longer than its context",
		file: loginFile, old: "syscall.LOCK_EX|syscall.LOCK_NB", planted: "syscall.LOCK_EX",
		packages: loginTests, run: "TestWaitForAnotherCommand",
	},
	{
		name: "oidc-refresh-blocks", breaks: "a request waits for a refresh no longer than its context",
		file: loginSource, old: "	case <-ctx.Done():\n		return \"\", ctx.Err()\n", planted: "",
		packages: loginTests, run: "TestWaitForAnotherRequest",
	},
	{
		name: "oidc-token-unused", breaks: "a token is used until it expires if it cannot be refreshed",
		file: loginSource, old: "errors.Is(err, errLoggedOut) || !l.valid()", planted: "true",
		packages: loginTests, run: "TestTokenWithoutRefresh",
	},
	{
		name: "oidc-slow-is-expired", breaks: "a request for the token that times out does not end the login",
		file: loginIssuer, old: "case !c.Expires.IsZero() && !time.Now().Before(c.Expires):", planted: "case true:",
		packages: loginTests, run: "TestSlowIssuer",
	},
	{
		name: "oidc-logged-out-is-expired", breaks: "a refresh after a logout reports the logout",
		file: loginSource, old: "case !ok: // another command has removed it", planted: "case !ok && false:",
		packages: loginTests, run: "TestLogoutBeforeRefresh",
	},
	{
		name: "oidc-stream-without-token", breaks: "a stream without a token is not opened",
		file: "client/token.go", old: "return failedStream{spec, http.Header{}, err}",
		planted:  "return next(ctx, spec)",
		packages: "./client", run: "TestTokenSourceFails",
	},
	{
		name: "oidc-any-audience", breaks: "a token for another audience is rejected",
		file: oidcIssuers, old: "ClientID: audience,", planted: "SkipClientIDCheck: true,",
		packages: oidcTests, run: "TestClaims",
	},
	{
		name: "oidc-expired", breaks: "a token that has expired is rejected",
		file: oidcIssuers, old: "Now: i.now,", planted: "SkipExpiryCheck: true,",
		packages: oidcTests, run: "TestClaims",
	},
	{
		name: "oidc-any-issuer", breaks: "a token counts only at the issuer that it names",
		file:     oidcIssuers,
		old:      "	one := i.all[from]\n",
		planted:  "	one := i.all[from]\n	for _, any := range i.all {\n		one = any\n	}\n",
		packages: oidcTests, run: "TestSeveralIssuers",
	},
	{
		name: "oidc-unsigned", breaks: "a token that its issuer has not signed is rejected",
		file: oidcIssuers, old: "Now: i.now,", planted: "Now: i.now, InsecureSkipSignatureCheck: true,",
		packages: oidcTests, run: "TestForgedTokens",
	},
	{
		name: "oidc-signature-unchecked", breaks: "the signature of a token is checked by the key of its issuer",
		file:     oidcKeys,
		old:      "		if payload, err := jws.Verify(candidates[n].Key); err == nil {",
		planted:  "		if payload := jws.UnsafePayloadWithoutVerification(); candidates[n].Key != nil {",
		packages: oidcTests, run: "TestForgedTokens",
	},
	{
		name: "oidc-any-key", breaks: "a token without a key ID is not tried with several keys",
		file: oidcKeys, old: `header.KeyID == "" && len(candidates) > 1`, planted: "false",
		packages: oidcTests, run: "TestDiscovery",
	},
	{
		name: "oidc-small-keys", breaks: "RSA keys have at least 2048 bits",
		file: oidcKeys, old: "bits >= minModulus && ", planted: "",
		packages: oidcTests, run: "TestAlgorithms",
	},
	{
		name: "oidc-encryption-keys", breaks: "a key for encryption cannot sign tokens",
		file: oidcKeys, old: ` || key.Use != "" && key.Use != "sig"`, planted: "",
		packages: oidcTests, run: "TestDiscovery",
	},
	{
		name: "oidc-keys-in-the-clear", breaks: "the keys of an issuer are read by https",
		file: oidcKeys, old: "k.config.local() && isLoopback(u.Hostname())", planted: "true",
		packages: oidcTests, run: "TestKeysAreReadByTLS",
	},
	{
		name: "oidc-keys-anywhere", breaks: "the address of the keys of an issuer is checked before they are read",
		file: oidcKeys, old: "k.checkLocation(document.JWKS); err != nil {", planted: "k.checkLocation(\"\"); false {",
		packages: oidcTests, run: "TestDiscovery",
	},
	{
		name: "oidc-keys-read-often", breaks: "tokens with unknown keys do not cause reads without limit",
		file: oidcKeys, old: " || !k.demand.AllowN(k.now(), 1)", planted: "",
		packages: oidcTests, run: "TestRotatedKeys",
	},
	{
		name: "oidc-withdrawn-keys-used", breaks: "withdrawn keys are not used if the issuer has no other key",
		file: oidcKeys, old: "err == nil || errors.Is(err, errUnusable) {", planted: "err == nil {",
		packages: oidcTests, run: "TestWithdrawnKeys",
	},
	{
		name: "oidc-not-a-key-set", breaks: "an answer that is not a set of keys does not withdraw keys",
		file: oidcKeys, old: "document.Keys == nil:", planted: "false:",
		packages: oidcTests, run: "TestWithdrawnKeys",
	},
	{
		name: "oidc-old-keys-forever", breaks: "keys are used for a day while the issuer is down",
		file: oidcKeys, old: "k.now().Sub(k.read) > staleTime", planted: "k.read.IsZero()",
		packages: oidcTests, run: "TestIssuerIsDown",
	},
	{
		name: "oidc-issuer-required", breaks: "an issuer without a URL is reported as missing",
		file: oidcConfig, old: `if c.Issuer == "" {`, planted: "if false {",
		packages: oidcTests, run: "TestConfigurationIsChecked",
	},
	{
		name: "oidc-cloud-metadata", breaks: "the address of an issuer is not that of cloud metadata",
		file: oidcConfig, old: ", ControlContext: remote.Control}", planted: "}\n	_ = remote.Control",
		packages: oidcTests, run: "TestIssuerAddresses",
	},
	{
		name: "oidc-redirected", breaks: "redirects of an issuer are not followed",
		file: oidcConfig, old: "return errRedirect }", planted: "return nil }",
		packages: oidcTests, run: "TestIssuerRedirects",
	},
	{
		name: "oidc-many-groups", breaks: "a token has at most 200 groups",
		file: oidcClaims, old: "len(groups) > MaxGroups", planted: "false",
		packages: oidcTests, run: "TestClaims",
	},
	{
		name: "oidc-control-characters-in-groups", breaks: "a group with control characters does not count",
		file: oidcClaims, old: "len(name) <= maxGroup && printable(name)", planted: "len(name) <= maxGroup",
		packages: oidcTests, run: "TestClaims",
	},
	{
		name: "oidc-control-characters-in-names", breaks: "a name with control characters is rejected",
		file: oidcClaims, old: "len(name) > maxName || !graphic(name) {", planted: "len(name) > maxName {",
		packages: oidcTests, run: "TestClaims",
	},
	{
		name: "oidc-unverified-email", breaks: "an e-mail address that is not verified cannot be the name of a user",
		file: oidcClaims, old: `ok && c.NameClaim == "email"`, planted: "ok && false",
		packages: oidcTests, run: "TestNameClaim",
	},
	{
		name: "oidc-groups-confused", breaks: "groups of different issuers differ",
		file: oidcConfig, old: "strings.HasPrefix(c.GroupPrefix, other.GroupPrefix)", planted: "false",
		packages: oidcTests, run: "TestConfigurationIsChecked",
	},
	{
		name: "oidc-prefix-lost", breaks: "a group has the prefix of its issuer",
		file: oidcClaims, old: "append(named, c.GroupPrefix+group)", planted: "append(named, group)",
		packages: oidcTests, run: "TestSeveralIssuers",
	},
	{
		name: "oidc-cached-too-long", breaks: "a cached token is not accepted after it has expired",
		file: usersOfToken, old: "		v.until = v.expires\n", planted: "",
		packages: "./engine/auth", run: "TestTokensExpire",
	},
	{
		name: "oidc-stream-outlives", breaks: "a stream ends when the token of its user expires",
		file: "engine/auth/authenticator.go", old: "if p.expired(a.now()) {", planted: "if false {",
		packages: "./engine/auth", run: "TestTokensExpire",
	},
	{
		name: "oidc-stream-not-verified", breaks: "a stream ends when the issuer removes the key of its token",
		file: "engine/auth/authenticator.go", old: `if p.token != "" {`, planted: "if false {",
		packages: "./engine/auth", run: "TestStreamsVerifyAgain",
	},
	{
		name: "oidc-never-verified-again", breaks: "a token is verified again after 5 minutes",
		file: usersOfToken, old: "a.now().Add(tokenTime)", planted: "who.Expires",
		packages: "./engine/auth", run: "TestTokensExpire",
	},
	{
		name: "oidc-locked-out", breaks: "failures of an address do not lock out the users who share it",
		file: usersOfToken, old: "	if !u.verifies.take(address) {",
		planted: "	if !a.failed.left(address) {\n		return nil, ErrLimited\n	}\n" +
			"	if !u.verifies.take(address) {",
		packages: "./engine/auth", run: "TestRejectedTokens|TestAttackersDoNotLockOut",
	},
	{
		name: "oidc-unknown-tokens-unlimited", breaks: "an address cannot send unknown tokens without limit",
		file: usersOfToken, old: "!u.verifies.take(address)", planted: "false",
		packages: "./engine/auth", run: "TestAttackersDoNotLockOut|TestTokensWhileTheIssuerIsDown",
	},
	{
		name: "oidc-failures-unlimited", breaks: "failed authentications by JSON Web Tokens are limited",
		file: "engine/auth/authenticator.go", old: "	case !left:\n",
		planted:  "	case scheme != \"oidc\" && !left:\n",
		packages: "./engine/auth", run: "TestRejectedTokens",
	},
	{
		name: "oidc-all-locked-out", breaks: "attackers use up only the budget of addresses with failures",
		file: usersOfToken, old: "!a.failed.left(address) && !u.suspects.Allow()", planted: "!u.suspects.Allow()",
		packages: "./engine/auth", run: "TestAttackersDoNotLockOut",
	},
	{
		name: "oidc-suspects-unlimited", breaks: "the tokens of addresses with failures are limited together",
		file: usersOfToken, old: "!a.failed.left(address) && !u.suspects.Allow()", planted: "false",
		packages: "./engine/auth", run: "TestAttackersDoNotLockOut",
	},
	{
		name:   "oidc-unknown-issuer-counts",
		breaks: "a token of an unknown issuer does not use up verifications of others",
		file:   usersOfToken, old: "	issuer, err := u.issuers.Find(token)\n	if err != nil {\n",
		planted: "	issuer, err := u.issuers.Find(token)\n	if err != nil {\n" +
			"		u.suspects.Allow()\n",
		packages: "./engine/auth", run: "TestAttackersDoNotLockOut",
	},
	{
		name: "oidc-reason-shown", breaks: "the error for a forged token does not say why it is rejected",
		file: usersOfToken, old: "	return ErrRejected\n", planted: "	return err\n",
		packages: "./engine/auth", run: "TestRejectedTokens",
	},
	{
		name: "oidc-down-is-invalid", breaks: "a token is not reported as invalid while its issuer is down",
		file: usersOfToken, old: "errors.Is(err, oidc.ErrUnreachable)", planted: "false",
		packages: "./engine/auth", run: "TestTokensWhileTheIssuerIsDown",
	},
	{
		name: "oidc-long-tokens", breaks: "a JSON Web Token has at most 16 KiB",
		file: usersOfToken, old: "len(token) > maxJWT", planted: "false",
		packages: "./engine/auth", run: "TestRejectedTokens",
	},
	{
		name: "oidc-without-groups", breaks: "a user has the grants of its groups",
		file: usersOfToken, old: "range who.Groups {", planted: "range who.Groups[:0] {",
		packages: "./engine/auth", run: "TestUsersAndGroups",
	},
}
