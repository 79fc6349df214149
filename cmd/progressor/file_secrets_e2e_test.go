package main

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A configuration file may name secrets that are not stored yet. Missing secrets do not prevent the
// start.
func TestSecretsOfAConfigurationFile(t *testing.T) {
	t.Parallel()
	file := clitest.WriteConfig(t, `namespaces:
  - namespace: shop
    processor:
      connect:
        url: https://127.0.0.1:1
        signing_secrets: [absent]
        headers: {authorization: "Bearer ${secret:absent}"}
        tls: {certificate_secret: absent}
crons:
  - namespace: shop
    cron_id: nightly
    spec: {expressions: ["@daily"]}
    target:
      http: {url: "https://127.0.0.1:1", signing_secrets: [absent], tls: {certificate_secret: absent}}
`)
	dsn := storagetest.DSN(t)
	p := clitest.Program{Commands: newCommands}
	p.OK(t, "config", "check", "-c", file, "--db.dsn", dsn)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn, "-c", file).Client
	if out := d.OK(t, "namespace", "get", "shop", "-o", "json"); !strings.Contains(out, `"certificateSecret"`) {
		t.Errorf("%s", out)
	}
}
