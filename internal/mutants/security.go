package main

const auditChain = "storage/audit_chain.go"

// securityMutants remove checks that protect the engine from attackers.
var securityMutants = []mutant{
	{
		name: "any-host", breaks: "a request with a foreign Host is rejected",
		file: "engine/rpc/hosts.go", old: "if !h.allow(r.Host) {", planted: "if false {",
		packages: "./engine/rpc", run: "TestRebinding",
	},
	{
		name: "host-with-prefix", breaks: "a name that only ends with an allowed name is rejected",
		file: "engine/rpc/hosts.go", old: `strings.CutPrefix(lower, "*")`, planted: `strings.CutPrefix(lower, "*.")`,
		packages: "./engine/rpc", run: "TestHosts",
	},
	{
		name: "profiles-for-any-host", breaks: "profiles are served only to known hosts",
		file: "cmd/progressor/internal/cli/server/profiles.go", old: "return hosts.Guard(mux, func() {})",
		planted:  "return mux",
		packages: "./cmd/progressor/internal/cli/server", run: "TestProfiles",
	},
	{
		name: "json-of-many-values", breaks: "a JSON request has at most 200,000 values",
		file: "internal/elements/elements.go", old: "case ',', '[', '{':", planted: "case '{':",
		packages: "./engine/rpc", run: "TestExpandingRequests",
	},
	{
		name: "msgpack-of-many-values", breaks: "a MessagePack request has at most 200,000 values",
		file: "internal/msgpack/read.go", old: "d.count > d.limit", planted: "false",
		packages: "./engine/rpc", run: "TestExpandingRequests",
	},
	{
		name: "response-of-many-values", breaks: "a response of a processor has at most 200,000 values",
		file:     "processor/remote/plain.go",
		old:      "elements.CheckJSON(text, process.MaxElements)",
		planted:  "elements.CheckJSON(text, process.MaxMessageBytes)",
		packages: "./processor/remote", run: "TestResponsesOfManyValues",
	},
	{
		name: "error-with-the-request", breaks: "an error does not repeat long values of a request",
		file: "engine/rpc/codec.go", old: "len(err.Error()) <= maxErrorText {", planted: "true {",
		packages: "./engine/rpc", run: "TestErrorsDoNotRepeatTheRequest",
	},
	{
		name: "body-without-deadline", breaks: "a body that stops arriving ends its request",
		file: "engine/rpc/bodies.go", old: "b.timer = time.AfterFunc(b.timeout, b.check)",
		planted:  "b.timer = time.AfterFunc(time.Hour, b.check)",
		packages: "./engine/rpc", run: "TestSlowBody",
	},
	{
		name: "cron-calls-its-engine", breaks: "a cron or sink cannot call the engine that runs it",
		file: "processor/remote/egress.go", old: "if listener == to {", planted: "if false {",
		packages: "./processor/remote", run: "TestOwnListenerIsDenied",
	},
	{
		name: "banner-in-the-ledger", breaks: "the detail of a fire does not contain the banner of a server",
		file: "engine/crons/http.go", old: `failed("%s", remote.FailureClass(err))`, planted: `failed("%s", err)`,
		packages: "./engine/crons", run: "TestBannerIsNotStored",
	},
	{
		name: "banner-in-a-sink", breaks: "the last error of a sink does not contain the banner of a server",
		file: "engine/sinks/webhook/webhook.go", old: "errors.New(remote.FailureClass(err))", planted: "err",
		packages: "./engine/sinks/webhook", run: "TestFailuresShowNothingInternal",
	},
	{
		name: "patterns-without-limit", breaks: "the schemas of a template have at most 200 patterns",
		file: "flow/schema.go", old: "case z.patterns > process.MaxPatterns:", planted: "case false:",
		packages: "./flow", run: "TestSchemasAreBounded",
	},
	{
		name: "ready-while-stopping", breaks: "a node that stops is not ready",
		file: "cmd/progressor/internal/cli/server/run.go", old: "case n.stopping.Load():", planted: "case false:",
		packages: "./cmd/progressor", run: "TestServeLingers",
	},
	{
		name: "method-without-token", breaks: "every method needs a token",
		file: "engine/rpc/handler.go", old: "packErrors(private(limitBody(h)))", planted: "packErrors(limitBody(h))",
		packages: "./engine/rpc", run: "TestEveryMethodNeedsAToken",
	},
	{
		name: "any-secret", breaks: "a token needs the secret of its key",
		file:     "engine/auth/authenticator.go",
		old:      "subtle.ConstantTimeCompare(hash[:], s.hash[:]) != 1 ||",
		planted:  "false && subtle.ConstantTimeCompare(hash[:], s.hash[:]) != 1 ||",
		packages: "./engine/auth", run: "TestKeys",
	},
	{
		name: "revoked-key-is-cached", breaks: "a revoked key is rejected after 10 s",
		file: "engine/auth/authenticator.go", old: "age < CacheTime {", planted: "age < staleTime {",
		packages: "./engine/auth", run: "TestCache",
	},
	{
		name: "all-wait-for-a-key", breaks: "requests do not wait long while another request reads their key",
		file: "engine/auth/authenticator.go", old: "	if age <= staleTime {", planted: "	if false {",
		packages: "./engine/auth", run: "TestDatabaseHangs",
	},
	{
		name: "old-state-at-once", breaks: "requests do not use an old state of a key while the database responds",
		file: "engine/auth/authenticator.go", old: "refreshWait = time.Second", planted: "refreshWait = 0",
		packages: "./engine/auth", run: "TestDatabaseHangs",
	},
	{
		name: "expires-never", breaks: "a key that expires at once is not a key that never expires",
		file: "cmd/progressor/internal/cli/server/key.go", old: "*expires < time.Second:", planted: "*expires < 0:",
		packages: "./cmd/progressor", run: "TestWrongGrants",
	},
	{
		name: "guesses-without-limit", breaks: "guesses cause a bounded number of reads",
		file: "engine/auth/authenticator.go", old: "!a.failed.left(address) && !a.lookups.take(address)",
		planted:  "false",
		packages: "./engine/auth", run: "TestGuessing",
	},
	{
		name: "new-keys-locked-out", breaks: "requests without a token do not lock out keys of their address",
		file: "engine/auth/authenticator.go", old: "!a.failed.left(address) && !a.lookups.take(address)",
		planted:  "!a.failed.left(address)",
		packages: "./engine/auth", run: "TestNewKeys",
	},
	{
		name: "users-displace-keys", breaks: "users do not displace keys from the cache",
		file: "engine/auth/authenticator.go", old: "	cached := a.cachedUsers\n",
		planted:  "	cached := a.cachedKeys\n",
		packages: "./engine/auth", run: "TestKeysStayCached",
	},
	{
		name: "cache-emptied", breaks: "a full cache does not lose most of its entries at once",
		file: "engine/auth/cache.go", old: "<= maxCached*9/10 {", planted: "<= 0 {",
		packages: "./engine/auth", run: "TestCacheIsBounded",
	},
	{
		name: "cache-unbounded", breaks: "a cache has at most 10,000 entries",
		file: "engine/auth/cache.go", old: "c.count.Load() >= maxCached {", planted: "false {",
		packages: "./engine/auth", run: "TestCacheIsBounded",
	},
	{
		name: "cache-loses-new", breaks: "a full cache loses old entries first",
		file: "engine/auth/cache.go", old: "all || c.isOld(v)", planted: "all || !c.isOld(v)",
		packages: "./engine/auth", run: "TestCacheIsBounded|TestTokenCache",
	},
	{
		name: "new-keys-without-limit", breaks: "reads of new keys are limited for all addresses together",
		file: "engine/auth/authenticator.go", old: "!a.unknown.Allow()", planted: "false",
		packages: "./engine/auth", run: "TestNewKeys",
	},
	{
		name: "busy-is-invalid", breaks: "a client with too many new tokens is not told that its token is wrong",
		file: "engine/rpc/authenticate.go", old: ", errors.Is(err, auth.ErrBusy):", planted: ":",
		packages: "./engine/rpc", run: "TestCodesOfFailedAuthentications",
	},
	{
		name: "two-credentials", breaks: "two credentials at once are rejected",
		file: "engine/auth/authenticator.go", old: "len(headers) > 1 || !ok", planted: "!ok",
		packages: "./engine/auth", run: "TestKeys",
	},
	{
		name: "any-role", breaks: "a method needs its permission",
		file: "engine/rpc/authorize.go", old: "if p.Can(needs, namespace) ||",
		planted:  "if true || p.Can(needs, namespace) ||",
		packages: "./engine/rpc", run: "TestEveryMethodAsEveryRole",
	},
	{
		name: "lease-of-any-namespace", breaks: "the namespace of a lease token is checked",
		file: "engine/rpc/named.go", old: `case "lease_token", "lease_tokens":`, planted: `case "lease_token":`,
		packages: "./engine/rpc", run: "TestEveryNamespaceIsChecked",
	},
	{
		name: "target-without-permission", breaks: "a target in another namespace needs a permission there",
		file: "engine/rpc/named.go", old: "namedNamespace{name, f.needs, name == own}",
		planted: "namedNamespace{name, f.needs, true}", packages: "./engine/rpc", run: "TestTargets",
	},
	{
		name: "stop-workers-of-others", breaks: "only a client that may operate all namespaces of a worker can stop it",
		file: "engine/rpc/worker.go", old: "	if !elsewhere {", planted: "	if true || !elsewhere {",
		packages: "./cmd/progressor", run: "TestStopWorkerOfOthers",
	},
	{
		name: "payload-in-lists", breaks: "payloads of a list are hidden",
		file: "engine/rpc/shown.go", old: "for i := range list.Len() {",
		planted:  "for i := range min(0, list.Len()) {",
		packages: "./engine/rpc", run: "TestHidden",
	},
	{
		name: "headers-in-states", breaks: "the state of a cron does not show the headers of its target",
		file: "engine/rpc/shown.go", old: "return own == 0 ||", planted: "return true ||",
		packages: "./engine/rpc", run: "TestHiddenInProcessesOfTheEngine",
	},
	{
		name: "shared-with-anyone", breaks: "clients with different grants do not share responses",
		file: "engine/rpc/shared.go", old: `viewOf(ctx) + "\x00" + string(text)`, planted: "string(text)",
		packages: "./engine/rpc", run: "TestSharedByView",
	},
	{
		name: "stream-of-a-revoked-key", breaks: "a stream ends when its key is revoked",
		file: "engine/auth/authenticator.go", old: "if !s.valid {", planted: "if false {",
		packages: "./engine/rpc", run: "TestStreamsAreFollowed",
	},
	{
		name: "pattern-of-a-prefix", breaks: "shop/* does not match shops",
		file: "process/patterns.go", old: `strings.CutSuffix(pattern, "*"); ok {`,
		planted:  `strings.CutSuffix(strings.Replace(pattern, "/*", "*", 1), "*"); ok {`,
		packages: "./engine/auth", run: "TestRoles",
	},
	{
		name: "all-namespaces-for-all", breaks: "lists have only the namespaces that the client may see",
		file: "engine/rpc/authorize.go", old: "return engine.WithVisible(ctx, a.visible)",
		planted:  "return engine.WithVisible(ctx, nil)",
		packages: "./cmd/progressor", run: "TestListsShowWhatClientsMaySee",
	},
	{
		name: "password-until-ampersand", breaks: "a password with & is hidden completely",
		file: "cmd/progressor/internal/cli/server/config.go", old: `(?:\\.|[^\s\\])+`, planted: `[^\s&]+`,
		packages: "./cmd/progressor", run: "TestSecretsAreRedacted",
	},
	{
		name: "nothing-is-reserved", breaks: "answers of workers and commands of operators pass a full node",
		file: "engine/inflight.go", old: "limit -= limit / reservedPortion", planted: "_ = reservedPortion",
		packages: "./engine", run: "TestReservedRequests",
	},
	{
		name: "waits-are-work", breaks: "requests that wait for an event do not count as work",
		file: "engine/await.go", old: "		enter = e.enterWaiting", planted: "		enter = e.enter",
		packages: "./engine", run: "TestInFlightPerNamespace",
	},
	{
		name: "client-takes-all", breaks: "one client has a share of the requests of a node",
		file: "engine/rpc/clients.go", old: "if limit > 0 && held[of] >= limit {", planted: "if limit > 0 && false {",
		packages: "./engine/rpc", run: "TestOneClientDoesNotFillTheNode",
	},
	{
		name: "answers-in-the-share", breaks: "a client whose share is full can send the answers of its workers",
		file: "engine/rpc/clients.go", old: "	if reservedMethods[method] {", planted: "	if false {",
		packages: "./engine/rpc", run: "TestFullShareOfCalls",
	},
	{
		name: "stalled-for-good", breaks: "a response that its client does not read ends",
		file:     "engine/rpc/stalls.go",
		old:      "SetWriteDeadline(time.Unix(1, 0))",
		planted:  "SetWriteDeadline(time.Time{})",
		packages: "./engine/rpc", run: "TestClientsThatDoNotRead",
	},
	{
		name: "closed-window", breaks: "a small response ends if its client of HTTP/2 does not read it",
		file: "engine/rpc/stalls.go", old: "if w.http2 && !w.ended {", planted: "if false {",
		packages: "./engine/rpc", run: "TestClosedWindows",
	},
	{
		name: "closed-window-of-a-page", breaks: "a response that fits in one part ends if it is not read",
		file: "engine/rpc/stalls.go", old: "timed.free = http2Buffer", planted: "timed.free = writePart",
		packages: "./engine/rpc", run: "TestClosedWindows",
	},
	{
		name: "idle-is-stalled", breaks: "a stream that has nothing to send is not stalled",
		file: "engine/rpc/stalls.go", old: "	w.begin = time.Time{}", planted: "",
		packages: "./engine/rpc", run: "TestSlowReadersAreServed",
	},
	{
		name: "deaf-connection", breaks: "a connection of HTTP/2 that its client does not read is closed",
		file: "engine/rpc/serve.go", old: ", WriteByteTimeout: writeTimeout}", planted: "}",
		packages: "./engine/rpc", run: "TestConnectionsThatAreNotRead",
	},
	{
		name: "watchers-hold-all", breaks: "clients that do not read hold a bounded part of the memory",
		file:     "engine/watchers.go",
		old:      "(all || wt.behind) && w.held < maxHeldBytes {",
		planted:  "(all || wt.behind) {",
		packages: "./engine", run: "TestWatchersHoldLittle",
	},
	{
		name: "metrics-for-each", breaks: "namespaces beyond a limit have common metrics",
		file: "engine/namespace_labels.go", old: "len(l.own) >= maxLabelled", planted: "false",
		packages: "./engine/rpc", run: "TestMetricsOfManyNamespaces",
	},
	{
		name: "metrics-of-the-deleted", breaks: "the metrics of a deleted namespace disappear",
		file:     "engine/namespace_labels.go",
		old:      "	for _, s := range l.series {",
		planted:  "	for _, s := range l.series[:0] {",
		packages: "./engine/rpc", run: "TestMetricsOfManyNamespaces",
	},
	{
		name: "namespaces-in-parallel", breaks: "the number of namespaces is limited",
		file:     "engine/namespaces.go",
		old:      "		e.registry.creating.Lock()\n		defer e.registry.creating.Unlock()\n",
		planted:  "",
		packages: "./engine", run: "TestNamespacesAreLimited",
	},
	{
		name: "audit-with-secrets", breaks: "the audit does not contain headers of a configuration",
		file: "storage/audit_change.go", old: `"headers": true, `, planted: "",
		packages: "./storage", run: "TestAuditHasTheChange",
	},
	{
		name: "audit-deleted-early", breaks: "audit entries are kept for their retention",
		file: "migrations/00126_audit_chain.sql", old: "DEFAULT '90 days'", planted: "DEFAULT '1 day'",
		packages: "./storage", run: "TestEngineRoleOnlyAddsAudit",
	},
	{
		name: "audit-details-unchecked", breaks: "a change of the details of an audit entry is found",
		file: auditChain, old: "return subject && bytes.Equal(e.DetailsHash, auditMAC(v.key, e.Namespace, e.Details))",
		planted:  "return subject",
		packages: "./storage", run: "TestAuditChainFindsChanges",
	},
	{
		name: "audit-order-unchecked", breaks: "an audit entry has the hash of the previous one",
		file: auditChain, old: "append(bytes.Clone(previous), auditParts(",
		planted:  "append(bytes.Clone(nil), auditParts(",
		packages: "./storage", run: "TestAuditChainFindsChanges",
	},
	{
		name: "audit-end-unchecked", breaks: "the deletion of the last audit entries is found",
		file: auditChain, old: "	case v.position < last:", planted: "	case false:",
		packages: "./storage", run: "TestAuditChainFindsChanges",
	},
	{
		name: "audit-rewritten", breaks: "a known entry shows that the audit was rewritten",
		file: auditChain, old: "k.Position == v.position && ", planted: "k.Position == 0 && ",
		packages: "./storage", run: "TestAuditChainIsRewritten",
	},
	{
		name: "audit-start-lost", breaks: "the hash chain continues after the retention of audit entries",
		file: "migrations/00126_audit_chain.sql", old: "removed_hash = last_old.chain_hash;",
		planted:  "removed_hash = removed_hash;",
		packages: "./storage", run: "TestAuditRetentionKeepsTheChain",
	},
	{
		name: "audit-of-the-owner", breaks: "the audit has the role that calls a SQL function",
		file: "migrations/00126_audit_chain.sql", old: "'pg:' || session_user", planted: "'pg:' || current_user",
		packages: "./storage", run: "TestFunctionsSend",
	},
	{
		name: "audit-fault-ignored", breaks: "doctor fails if the hash chain of the audit is broken",
		file: "cmd/progressor/internal/cli/server/doctoraudit.go", old: `if chain.Fault != "" {`, planted: "if false {",
		packages: "./cmd/progressor/internal/cli/server", run: "TestDoctorVerifiesTheAudit",
	},
	{
		name: "grant-without-change", breaks: "the audit has the grant that was removed",
		file: "storage/grants.go", old: "ConfigChange{Before: g.json()}", planted: "ConfigChange{}",
		packages: "./cmd/progressor/internal/cli/server", run: "TestAccessIsAudited",
	},
	{
		name: "token-and-certificate", breaks: "a client with a certificate and a token is rejected",
		file: "engine/auth/authenticator.go", old: "!errors.Is(err, ErrMissing) {", planted: "false && err != nil {",
		packages: "./engine/rpc", run: "TestClientCertificates",
	},
	{
		name: "first-uri-counts", breaks: "a certificate with several URIs does not authenticate its client",
		file: "engine/rpc/authenticate.go", old: "URIs) != 1 {", planted: "URIs) == 0 {",
		packages: "./engine/rpc", run: "TestClientCertificates",
	},
	{
		name: "any-authority", breaks: "only an authority of clients issues their certificates",
		file: "engine/rpc/certificates.go", old: "tls.VerifyClientCertIfGiven", planted: "tls.RequestClientCert",
		packages: "./engine/rpc", run: "TestClientCertificates",
	},
	{
		name: "certificate-outlived", breaks: "requests end when the certificate of their client expires",
		file:     "engine/rpc/authenticate.go",
		old:      "context.WithDeadline(ctx, r.TLS.PeerCertificates[0].NotAfter)",
		planted:  "context.WithCancel(ctx)",
		packages: "./engine/rpc", run: "TestRequestsEndWithTheCertificate",
	},
	{
		name: "certificates-kept", breaks: "new certificates in the files are used",
		file: "engine/rpc/certificates.go", old: ">= certificateTime {", planted: ">= 1000*certificateTime {",
		packages: "./engine/rpc", run: "TestCertificatesAreReadAgain",
	},
	{
		name: "certificates-stall", breaks: "connections do not wait while another connection reads the files",
		file: "engine/rpc/certificates.go", old: "if c.reading.TryLock() {", planted: "if c.reading.Lock(); true {",
		packages: "./engine/rpc", run: "TestFilesAreReadByOneConnection",
	},
	{
		name: "token-file-stalls", breaks: "requests do not wait while another request reads the token file",
		file: "client/token.go", old: "|| !f.reading.TryLock():",
		planted:  "|| func() bool { f.reading.Lock(); return false }():",
		packages: "./client", run: "TestTokenFileIsReadByOneRequest",
	},
	{
		name: "certificates-dropped", breaks: "files that cannot be used leave the previous certificates",
		file:     "engine/rpc/certificates.go",
		old:      "	certificate, err := tls.X509KeyPair(",
		planted:  "	c.config.Store(nil)\n	certificate, err := tls.X509KeyPair(",
		packages: "./engine/rpc", run: "TestCertificatesAreReadAgain",
	},
}
