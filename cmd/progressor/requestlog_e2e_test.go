package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// The ID of a request is in its response, in the log, in the audit and in its span. The log has no
// tokens and no payloads.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	spans, keyFile := newCollector(t), filepath.Join(t.TempDir(), "token")
	env := map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}
	d := background(t, env, "serve", "--listen", "127.0.0.1:0", "--log.format", "json", "--log.requests", "all",
		"--auth.mode", "local", "--auth.key-file", keyFile, "--tracing.endpoint", spans.url)
	token, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimSpace(string(token))
	d.Client.Env["PROGRESSOR_TOKEN"] = secret
	d.Client.OK(t, "namespace", "put", "echo", "--builtin", "echo")
	send := func(method, id, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			d.URL+"/progressor.v1."+method, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{
			"Content-Type": {"application/json"}, "Authorization": {"Bearer " + secret}, "X-Request-Id": {id},
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode, response.Header.Get("X-Request-Id")
	}
	for _, request := range []struct {
		method, id, body string
		status           int
	}{
		{"ProcessService/Start", "start-1", `{"namespace":"echo","processId":"p","args":"c2VjcmV0IGFyZ3M="}`,
			http.StatusOK},
		{"ProcessService/SuspendProcess", "suspend-1", `{"namespace":"echo","processId":"p"}`, http.StatusOK},
		{"ProcessService/SuspendProcess", "suspend-2", `{"namespace":"echo","processId":"q"}`, http.StatusNotFound},
		{"CronService/CreateCron", "cron-1", `{"cron":{"namespace":"echo","cronId":"c",
			"spec":{"expressions":["0 3 * * *"]},"target":{"startProcess":{}}}}`, http.StatusOK},
		{"BulkService/StartBulk", "bulk-1", `{"namespace":"echo","verb":"BULK_VERB_RESUME",
			"filter":"status = SUSPENDED"}`, http.StatusOK},
	} {
		if status, id := send(request.method, request.id, request.body); status != request.status || id != request.id {
			t.Errorf("%s: status %d, ID %q", request.id, status, id)
		}
	}
	if _, id := send("ProcessService/GetProcess", "two words", `{}`); len(id) != 32 {
		t.Errorf("an invalid ID became %q", id)
	}
	line := loggedRequest(t, d, "suspend-2")
	if line["method"] != "progressor.v1.ProcessService/SuspendProcess" || line["code"] != "not_found" ||
		line["status"] != 404.0 || line["actor"] != "root" || line["sent"] == 0.0 || line["took"] == 0.0 {
		t.Errorf("%v", line)
	}
	clitest.Eventually(t, "the bulk has resumed the process", func() error {
		audit := d.Client.OK(t, "audit", "echo", "--all", "-o", "json")
		for id, want := range map[string]int{"start-1": 0, "suspend-1": 1, "suspend-2": 0, "cron-1": 1, "bulk-1": 2} {
			if got := strings.Count(audit, `"`+id+`"`); got != want {
				return fmt.Errorf("%d entries of %s, want %d:\n%s", got, id, want, audit)
			}
		}
		return nil
	})
	if text := d.Log.String(); strings.Contains(text, secret) || strings.Contains(text, "c2VjcmV0IGFyZ3M=") ||
		strings.Contains(text, "secret args") {
		t.Errorf("the log has a secret:\n%s", text)
	}
	d.Stop(t)
	spans.mu.Lock()
	defer spans.mu.Unlock()
	ids := map[string]bool{}
	for _, span := range spans.spans {
		for _, a := range span.GetAttributes() {
			if a.GetKey() == "progressor.request_id" {
				ids[a.GetValue().GetStringValue()] = true
			}
		}
	}
	if !ids["start-1"] {
		t.Errorf("the spans have the IDs %v", ids)
	}
}

// loggedRequest returns the line of a request in the log.
func loggedRequest(t *testing.T, d *clitest.Daemon, id string) (found map[string]any) {
	t.Helper()
	clitest.Eventually(t, "the request is logged", func() error {
		for line := range strings.Lines(d.Log.String()) {
			var fields map[string]any
			err := json.Unmarshal([]byte(line), &fields)
			if err == nil && fields["msg"] == "request" && fields["request_id"] == id {
				found = fields
				return nil
			}
		}
		return fmt.Errorf("no line of %s in\n%s", id, d.Log.String())
	})
	return found
}
