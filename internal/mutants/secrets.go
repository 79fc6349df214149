package main

// secretMutants show, store or use secrets where they must not.
var secretMutants = []mutant{
	{
		name: "headers-stored-in-the-clear", breaks: "headers of a processor are stored encrypted",
		file: "engine/headers.go", old: "p.Headers = sealed", planted: "_ = sealed",
		packages: "./cmd/progressor", run: "TestSecrets",
	},
	{
		name: "cron-headers-in-the-clear", breaks: "headers of a cron are stored encrypted",
		file: "engine/crons/headers.go", old: "def.GetTarget().GetHttp().Headers = all", planted: "_ = all",
		packages: "./cmd/progressor", run: "TestSecrets",
	},
	{
		name: "headers-are-shown", breaks: "responses do not contain headers of a processor",
		file: "engine/headers.go", old: "p.Headers = secrets.Masked(p.GetHeaders())", planted: "_ = secrets.Masked",
		packages: "./cmd/progressor", run: "TestSecrets",
	},
	{
		name: "cron-headers-are-shown", breaks: "responses do not contain headers of a cron",
		file: "engine/crons/headers.go", old: "target.Headers = secrets.Masked(target.GetHeaders())",
		planted: "_ = secrets.Masked", packages: "./cmd/progressor", run: "TestSecrets",
	},
	{
		name: "sinks-in-the-clear", breaks: "the secrets of a sink are stored encrypted",
		file: "engine/sinks/sinks.go", old: "return s.sealed(ctx, proto.CloneOf(m))", planted: "return settingsOf(m)",
		packages: "./engine/sinks", run: "TestSettings",
	},
	{
		name: "sink-with-an-old-secret", breaks: "a sink uses a rotated secret without a put",
		file: "engine/sinks/open_target.go", old: "d.target.settings) {", planted: "settings) {",
		packages: "./engine/sinks", run: "TestSinkRefersToASecret",
	},
	{
		name: "lost-key-locks-a-sink", breaks: "a put with new secrets replaces those that cannot be decrypted",
		file: "engine/sinks/secrets.go", old: "broken != nil || !keepSecrets(proto.CloneOf(m), old)",
		planted:  "broken != nil || keepSecrets(proto.CloneOf(m), old) && false",
		packages: "./engine/sinks", run: "TestPutAfterTheKeyIsLost",
	},
	{
		name: "lost-secrets-are-kept", breaks: "a put does not keep secrets that cannot be decrypted",
		file: "engine/sinks/secrets.go", old: "broken != nil || !keepSecrets(proto.CloneOf(m), old)", planted: "true",
		packages: "./engine/sinks", run: "TestPutAfterTheKeyIsLost",
	},
	{
		name: "key-in-the-database", breaks: "with a master key, the engine does not create a key in the database",
		file: "engine/secrets/vault.go", old: "_, err := v.ofDatabase(ctx, v.store.Key)",
		planted:  "_, err := v.ofDatabase(ctx, v.store.CreateKey)",
		packages: "./engine/secrets", run: "TestKeyInTheDatabaseIsCreated",
	},
	{
		name: "invalid-is-unavailable", breaks: "invalid settings are not reported as a problem of the database",
		file: "storage/errors.go", old: "errors.AsType[*process.InvalidError](err); ok {",
		planted:  "errors.AsType[*process.InvalidError](err); ok && false {",
		packages: "./storage", run: "TestRejectedSettings",
	},
	{
		name:   "headers-for-another-host",
		breaks: "a client that changes a URL does not receive headers that it cannot read",
		file:   "engine/secrets/headers.go", old: "case !sameTarget:", planted: "case false:",
		packages: "./engine/secrets", run: "TestKeepStored",
	},
	{
		name: "sealed-by-a-client", breaks: "a client cannot send a value that was encrypted elsewhere",
		file: "engine/secrets/headers.go", old: "if strings.Contains(value, sealedPrefix) {", planted: "if false {",
		packages: "./engine/secrets", run: "TestReferences",
	},
	{
		name: "opened-in-any-namespace", breaks: "an encrypted header is opened only in its namespace",
		file: "engine/secrets/vault.go", old: `return "header\n" + namespace + "\n" +`, planted: `return "header\n" +`,
		packages: "./engine/secrets", run: "TestHeaders",
	},
	{
		name: "secret-of-any-namespace", breaks: "a namespace uses only the secrets whose pattern matches it",
		file: "engine/secrets/vault.go", old: "if !process.MatchNamespace(row.Namespaces, namespace) {",
		planted:  "if false {",
		packages: "./engine/secrets", run: "TestSecretOfANamespace",
	},
	{
		name: "rotated-secret-is-cached", breaks: "a rotated secret is used after 10 s",
		file: "engine/secrets/vault.go", old: "if ok && (age < CacheTime ||", planted: "if ok && (age < staleTime ||",
		packages: "./engine/secrets", run: "TestCache",
	},
	{
		name: "secret-reads-block", breaks: "requests do not wait while another request reads their secret",
		file: "engine/secrets/vault.go", old: "age < staleTime && last.reading) {", planted: "false) {",
		packages: "./engine/secrets", run: "TestOneRequestReads",
	},
	{
		name: "new-secret-is-missing", breaks: "a reference to a secret that was just put is accepted",
		file: "engine/secrets/vault.go", old: "v.forget(found[1])", planted: "_ = found",
		packages: "./engine/secrets", run: "TestReferences",
	},
	{
		name: "master-keys-for-all", breaks: "other users have no access to the file of master keys",
		file: "engine/secrets/key.go", old: "mode&othersAccess != 0 {", planted: "mode&othersAccess != 0 && false {",
		packages: "./engine/secrets", run: "TestMasterKeyFile",
	},
	{
		name: "secret-with-another-key", breaks: "a secret is not encrypted with a key that the engines do not have",
		file: "cmd/progressor/internal/cli/server/secret.go", old: "Namespaces: s.Namespaces}) == c.key() {",
		planted:  "Namespaces: s.Namespaces}) != (storage.SecretKey{}) {",
		packages: "./cmd/progressor", run: "TestMasterKey",
	},
	{
		name: "old-signature", breaks: "a request is accepted for five minutes only",
		file: "processor/signature/signature.go", old: "Abs() > Tolerance {", planted: "Abs() > 2*Tolerance {",
		packages: "./processor/signature", run: "TestVerify",
	},
	{
		name: "signature-of-the-body-only", breaks: "a signature covers the ID and the time of a request",
		file: "processor/signature/signature.go", old: `id + "." + timestamp + "."`, planted: `"." + "."`,
		packages: "./processor/signature", run: "TestVerify|TestSignExample",
	},
	{
		name: "unsigned-without-secrets", breaks: "a processor with a signing secret gets no unsigned request",
		file: "processor/remote/dial.go", old: "case signing && !open:", planted: "case false:",
		packages: "./processor/remote", run: "TestSignedRequests",
	},
	{
		name: "connect-is-not-signed", breaks: "requests in every encoding are signed",
		file: "processor/remote/rpc.go", old: "case len(keys) > 0:", planted: "case false && len(keys) > 0:",
		packages: "./processor/remote", run: "TestSignedRequests",
	},
	{
		name: "cron-is-not-signed", breaks: "requests of crons are signed",
		file: "engine/crons/http.go", old: "if len(keys) > 0 {", planted: "if len(keys) > 2 {",
		packages: "./cmd/progressor", run: "TestSignedRequests",
	},
	{
		name: "signing-key-is-not-checked", breaks: "a secret without a key is rejected by the put",
		file: "engine/secrets/signing.go", old: "if bad, ok := errors.AsType[*UnusableError](err); ok {",
		planted:  "if bad, ok := errors.AsType[*UnusableError](err); ok && false {",
		packages: "./cmd/progressor", run: "TestSignedRequests",
	},
	{
		name: "the-zero-key-signs", breaks: "the zero key, which everyone knows, signs nothing",
		file: "processor/signature/signature.go", old: "if !ok || len(k.bytes) < minKeyBytes {", planted: "if !ok {",
		packages: "./processor/signature", run: "TestVerify|TestManySignatures",
	},
	{
		name: "timestamp-in-the-id", breaks: "the timestamp of a recorded request cannot be changed",
		file: "processor/signature/signature.go", old: `if strings.Contains(id, ".") {`, planted: "if false {",
		packages: "./processor/signature", run: "TestVerify",
	},
	{
		name: "certificate-is-not-replaced", breaks: "a new client certificate is used for the next request",
		file: "processor/remote/credentials.go", old: "if last.certificate == certificate {",
		planted:  `if last.certificate == certificate || last.certificate != "" {`,
		packages: "./processor/remote", run: "TestClientCertificates",
	},
	{
		name: "authorities-are-unused", breaks: "the authorities of a target are trusted",
		file: "processor/remote/tls.go", old: "		pool.AddCert(certificate)\n",
		planted:  "		_ = certificate\n",
		packages: "./processor/remote", run: "TestAuthorities|TestClientCertificates",
	},
	{
		name: "tls-without-https", breaks: "TLS settings of a URL without TLS are rejected",
		file: "processor/remote/tls.go", old: `!strings.HasPrefix(strings.ToLower(text), "https:")`,
		planted:  `!strings.HasPrefix(strings.ToLower(text), "http")`,
		packages: "./processor/remote", run: "TestInvalidTLS",
	},
	{
		name: "crons-share-connections", breaks: "crons with other client certificates use other connections",
		file: "engine/crons/http_clients.go", old: "len(ca), ca, certificate))", planted: "len(ca), ca, nil))",
		packages: "./engine/crons", run: "TestHTTPClientsByTLSSettings",
	},
	{
		name: "webhook-without-certificate", breaks: "requests to a webhook use its client certificate",
		file: "engine/sinks/webhook/webhook.go", old: "			TLSClientConfig: s.security,\n", planted: "",
		packages: "./cmd/progressor", run: "TestClientCertificatesOfTargets",
	},
	{
		name: "certificate-is-not-checked", breaks: "a secret without a certificate is rejected by the put",
		file: "engine/secrets/certificate.go", old: "if _, err := remote.ParseCertificate(text); err != nil {",
		planted:  "if _, err := remote.ParseCertificate(text); false && err != nil {",
		packages: "./cmd/progressor", run: "TestClientCertificatesOfTargets",
	},
	{
		name: "header-of-another-authority", breaks: "a put with other authorities does not keep headers",
		file: "engine/headers.go", old: "if p.GetTls().GetCaPem() != before.GetTls().GetCaPem() {",
		planted:  "if false {",
		packages: "./cmd/progressor", run: "TestClientCertificatesOfTargets",
	},
	{
		name: "public-key-as-shared-key", breaks: "a public key does not verify an HMAC",
		file: "processor/signature/ed25519.go", old: "return Key{public: raw}, nil",
		planted:  "return Key{public: raw, bytes: raw}, nil",
		packages: "./processor/signature", run: "TestVerifyEd25519",
	},
	{
		name: "any-number-of-signatures", breaks: "a request does not make the receiver check many signatures",
		file: "processor/signature/signature.go", old: "signatures[:min(len(signatures), maxSignatures)]",
		planted:  "signatures[:len(signatures)+0*maxSignatures]",
		packages: "./processor/signature", run: "TestVerifyEd25519",
	},
	{
		name: "public-keys-of-one", breaks: "both keys are served while a key is replaced",
		file: "engine/headers.go", old: "SigningKeys(ctx, namespace, ns.connect.GetSigningSecrets())",
		planted: "SigningKeys(ctx, namespace, " +
			"ns.connect.GetSigningSecrets()[:min(len(ns.connect.GetSigningSecrets()), 1)])",
		packages: "./cmd/progressor", run: "TestPublicKeys",
	},
	{
		name: "file-without-secrets", breaks: "a configuration file may name signing secrets",
		file: "cmd/progressor/internal/cli/server/file.go", old: ", Secrets: &secrets.Vault{}}",
		planted:  "}\n\t_ = secrets.Mask",
		packages: "./cmd/progressor", run: "TestSecretsOfAConfigurationFile",
	},
	{
		name: "undecryptable-headers-unlogged", breaks: "a node logs the headers that it cannot decrypt",
		file: "cmd/progressor/internal/cli/server/secret.go", old: "	go logEncrypted(ctx, vault, stored, log)\n",
		planted:  "	_ = logEncrypted\n",
		packages: "./cmd/progressor", run: "TestUndecryptableHeaders",
	},
	{
		name: "undecryptable-headers-unbounded", breaks: "a node logs at most 20 headers that it cannot decrypt",
		file: "cmd/progressor/internal/cli/server/secret.go", old: "unknown++; unknown <= maxLoggedHeaders",
		planted:  "unknown++; unknown > 0",
		packages: "./cmd/progressor", run: "TestUndecryptableHeaders",
	},
}
