package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// notAtStart contains the metrics in alerts that an engine does not export when it has just
// started, each with the reason.
var notAtStart = map[string]string{
	"up":                                                  "Prometheus itself creates this series",
	"progressor_rpc_duration_seconds":                     "counts all requests; failures have their own metric",
	"progressor_job_duration_seconds":                     "has the label name",
	"progressor_job_lease_losses_total":                   "has the label name",
	"progressor_sink_state":                               "has the label sink_id",
	"progressor_sink_lag_seconds":                         "has the label sink_id",
	"progressor_sink_dead_letters_total":                  "has the label sink_id",
	"progressor_tls_certificate_expiry_timestamp_seconds": "exists only with TLS",
}

var (
	inAlert   = regexp.MustCompile(`\b(up|progressor_[a-z_]+?)((?:_bucket|_count)?)(?:\{([^}]*)\})?[\[ )]`)
	wantLabel = regexp.MustCompile(`\b\w+="[^"]*"`)
)

// An engine that has just started exports every series that an alert selects, except for the
// metrics in notAtStart. The functions rate() and increase() do not count an event that creates its
// series.
func TestAlertsHaveTheirSeries(t *testing.T) {
	t.Parallel()
	file, ops := filepath.Join(t.TempDir(), "progressor.yaml"), freeAddress(t)
	settings := "namespaces: [{namespace: echo, processor: {builtin: {name: echo}}}]\n"
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	clitest.Start(t, newCommands, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "-c", file,
		"--listen", "127.0.0.1:0", "--ops.listen", ops, "--auth.oidc.issuer", "https://127.0.0.1:1",
		"--auth.oidc.audience", "progressor")
	_, scrape := clitest.Fetch(t, "http://"+ops+"/metrics")
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	selected := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, ": \"") || strings.Contains(line, "description:") {
			continue // not an expression
		}
		for _, m := range inAlert.FindAllStringSubmatch(line, -1) {
			selected++
			if notAtStart[m[1]] == "" && !exports(scrape, m[1]+m[2], m[3]) {
				t.Errorf("a new engine does not export %s", strings.TrimRight(m[0], "[ )"))
			}
		}
	}
	if selected < 30 {
		t.Errorf("found only %d selectors", selected)
	}
	for _, bound := range documentedBounds(t) {
		if !exports(scrape, "progressor_requests_refused_total", `bound="`+bound+`"`) {
			t.Errorf("a new engine does not export the rejections of %s", bound)
		}
	}
}

// documentedBounds returns the values of the label bound that docs/operations.md lists, without
// max_backlog and max_waiting.
func documentedBounds(t *testing.T) (bounds []string) {
	t.Helper()
	_, row, _ := strings.Cut(readPage(t, "docs/operations.md"), "\n| `progressor_requests_refused_total` | bound |")
	row, _, _ = strings.Cut(row, "\n")
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row, -1) {
		if m[1] != "max_backlog" && m[1] != "max_waiting" {
			bounds = append(bounds, m[1])
		}
	}
	if len(bounds) < 10 {
		t.Fatalf("docs/operations.md lists only the bounds %q", bounds)
	}
	return bounds
}

// exports reports whether scrape has a series with this name and with all labels that matchers
// compare with =.
func exports(scrape, name, matchers string) bool {
	for line := range strings.Lines(scrape) {
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		matches := true
		for _, want := range wantLabel.FindAllString(matchers, -1) {
			matches = matches && strings.Contains(line, want)
		}
		if matches {
			return true
		}
	}
	return false
}
