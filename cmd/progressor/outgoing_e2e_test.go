package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/processor/remote"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Without --outgoing.allow, crons and sinks do not call private addresses, and their users see the
// reason. With it, a cron calls such an address.
func TestPrivateTargets(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(target.Close)
	dsn := storagetest.DSN(t)
	file := filepath.Join(t.TempDir(), "sink.yaml")
	text := fmt.Sprintf("sink_id: hook\nwebhook: {url: %s/hook, unsigned: true}\n", target.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fires := func(cron, allow, want string) {
		t.Helper()
		d := background(t, map[string]string{"PROGRESSOR_OUTGOING_ALLOW": allow}, "serve", "--listen", "127.0.0.1:0",
			"--db.dsn", dsn)
		d.Client.OK(t, "namespace", "put", "shop", "--pull", "--changes", "lifecycle")
		d.Client.OK(t, "cron", "create", "shop", cron, "@yearly", "--http", target.URL)
		d.Client.OK(t, "cron", "trigger", "shop", cron)
		clitest.Eventually(t, "the fire ends", func() error {
			if out := d.Client.OK(t, "cron", "fires", "shop", cron, "-o", "json"); !strings.Contains(out, want) {
				return fmt.Errorf("%s, want %q", out, want)
			}
			return nil
		})
		if want == remote.ErrPrivateAddress.Error() {
			d.Client.OK(t, "sink", "put", "shop", "-f", file)
			d.Client.OK(t, "put", "shop", "p-"+cron, "--status", "error", "--detail", "moved")
			clitest.Eventually(t, "the sink fails", func() error {
				if out := d.Client.OK(t, "sink", "get", "shop", "hook", "-o", "json"); !strings.Contains(out, want) {
					return fmt.Errorf("%s, want %q", out, want)
				}
				return nil
			})
		}
		d.Stop(t)
	}
	fires("a", "", remote.ErrPrivateAddress.Error())
	fires("b", "10.0.0.0/8", remote.ErrPrivateAddress.Error())
	fires("c", "127.0.0.0/8", "SUCCESS")
	r := clitest.Program{Commands: newCommands}.Run(t, "serve", "--db.dsn", dsn, "--outgoing.allow", "localhost")
	if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, "--outgoing.allow: must be a list of loopback,") {
		t.Errorf("%+v", r)
	}
}
