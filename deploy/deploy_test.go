// Package deploy_test checks the alert rules, the dashboard and the service definitions of this
// directory.
package deploy_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var (
	inSource = regexp.MustCompile(`"(progressor_[a-z_]+)"`)
	inQuery  = regexp.MustCompile(`\bprogressor_[a-z_]+\b`)
	series   = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// metricNames returns the names of the metrics in the code.
func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, dir := range []string{"../engine", "../storage", "../cmd"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range inSource.FindAllStringSubmatch(string(text), -1) {
				names[m[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// checkMetrics reports each metric of a query that does not exist.
func checkMetrics(t *testing.T, names map[string]bool, where, query string) {
	t.Helper()
	found := inQuery.FindAllString(query, -1)
	if len(found) == 0 && !strings.HasPrefix(query, "up{") {
		t.Errorf("%s: the query uses no metric of progressor: %s", where, query)
	}
	for _, name := range found {
		if !names[name] && !names[series.ReplaceAllString(name, "")] {
			t.Errorf("%s: the metric %s does not exist", where, name)
		}
	}
}

func read(t *testing.T, path string, unmarshal func([]byte, any) error, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// alertFile is a file of Prometheus rules.
type alertFile struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr         string
			Labels, Annotations map[string]string
		}
	}
}

// Each alert uses existing metrics, has a severity, a summary and a description, and is documented.
func TestAlerts(t *testing.T) {
	var file alertFile
	read(t, "prometheus/alerts.yaml", yaml.Unmarshal, &file)
	names := metricNames(t)
	documents, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	causes, err := os.ReadFile("../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			checkMetrics(t, names, rule.Alert, rule.Expr)
			if seen[rule.Alert] || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" ||
				rule.Annotations["description"] == "" {
				t.Errorf("%s is a duplicate, or has no severity, summary or description", rule.Alert)
			}
			if !strings.Contains(string(documents), "\n| "+rule.Alert+" |") {
				t.Errorf("docs/operations.md does not list %s", rule.Alert)
			}
			if strings.HasPrefix(rule.Alert, "ProgressorSink") && !strings.Contains(string(causes), rule.Alert) {
				t.Errorf("docs/troubleshooting.md does not say what to do after %s", rule.Alert)
			}
			seen[rule.Alert] = true
		}
	}
	if len(seen) == 0 {
		t.Error("the file has no rules")
	}
}

// Each alert leads to its section of the runbook, and each section belongs to an alert. A section
// explains what the alert means, how to find the cause and what to do.
func TestRunbook(t *testing.T) {
	var file alertFile
	read(t, "prometheus/alerts.yaml", yaml.Unmarshal, &file)
	text, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	repository, _, _ := strings.Cut(strings.TrimPrefix(string(module), "module "), "\n")
	sections := map[string]string{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		name, content, _ := strings.Cut(section, "\n")
		sections[name] = content
	}
	for _, rule := range file.Groups[0].Rules {
		section := sections[rule.Alert]
		delete(sections, rule.Alert)
		for _, part := range []string{"**Meaning.**", "**Cause.**", "**Action.**"} {
			if strings.Count(section, "\n"+part+" ") != 1 {
				t.Errorf("the section of %s in docs/runbook.md must have exactly one paragraph %s", rule.Alert, part)
			}
		}
		want := "https://" + repository + "/blob/main/docs/runbook.md#" + strings.ToLower(rule.Alert)
		if got := rule.Annotations["runbook_url"]; got != want {
			t.Errorf("the runbook_url of %s is %q, want %q", rule.Alert, got, want)
		}
	}
	for name := range sections {
		t.Errorf("docs/runbook.md has a section %s, but there is no such alert", name)
	}
	names := metricNames(t)
	queries := promQL.FindAllStringSubmatch(string(text), -1)
	for _, query := range queries {
		checkMetrics(t, names, "docs/runbook.md", query[1])
	}
	if len(queries) == 0 {
		t.Error("docs/runbook.md has no queries")
	}
}

var promQL = regexp.MustCompile("(?s)```promql\n(.*?)```")

// Each panel of the dashboard has its own ID and place, a description and queries of existing
// metrics. The dashboard shows all metrics of sinks and all durations of tasks.
func TestDashboard(t *testing.T) {
	type panel struct {
		ID                       int
		Type, Title, Description string
		Targets                  []struct{ Expr string }
		GridPos                  struct{ H, W, X, Y int }
	}
	var board struct {
		UID    string
		Panels []panel
	}
	read(t, "grafana/progressor.json", json.Unmarshal, &board)
	names := metricNames(t)
	ids := map[int]bool{}
	places := map[[2]int]string{}
	queries := 0
	shown := map[string]bool{} // the metrics that the dashboard must show
	for name := range names {
		if strings.HasPrefix(name, "progressor_sink_") {
			shown[name] = true
		}
	}
	for _, name := range strings.Fields(`calls_scanning timers_scanning zombie_collection request_preparing
		task_processing task_completion process_removing notification`) {
		shown["progressor_"+name+"_duration_ms_bucket"] = true
	}
	for _, p := range board.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q has the ID of another panel, or is wider than the page", p.Title)
		}
		ids[p.ID] = true
		place := [2]int{p.GridPos.X, p.GridPos.Y}
		if other, taken := places[place]; taken {
			t.Errorf("panels %q and %q have the same place", p.Title, other)
		}
		places[place] = p.Title
		if p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %q has no description, or no query", p.Title)
		}
		for _, target := range p.Targets {
			queries++
			for name := range shown {
				if strings.Contains(target.Expr, name) {
					delete(shown, name)
				}
			}
			checkMetrics(t, names, p.Title, target.Expr)
		}
	}
	if queries == 0 {
		t.Error("the dashboard has no queries")
	}
	for name := range shown {
		t.Errorf("the dashboard does not show %s", name)
	}
}

// systemd restarts an engine without a limit while its database is down. By default, systemd would
// give up after five starts within ten seconds.
func TestRestartsHaveNoLimit(t *testing.T) {
	text, err := os.ReadFile("systemd/progressor.service")
	if err != nil {
		t.Fatal(err)
	}
	unit, _, _ := strings.Cut(string(text), "[Service]")
	if !strings.Contains(unit, "\nStartLimitIntervalSec=0\n") || !strings.Contains(string(text), "\nRestart=always\n") {
		t.Error("the unit must restart always, with StartLimitIntervalSec=0 in its section [Unit]")
	}
}

// The engine notifies systemd when it is ready, and systemd does not end a long migration.
func TestSystemdWaitsForTheEngine(t *testing.T) {
	text, err := os.ReadFile("systemd/progressor.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Type=notify", "NotifyAccess=main", "TimeoutStartSec=infinity"} {
		if !strings.Contains(string(text), "\n"+line+"\n") {
			t.Errorf("the unit has no %s", line)
		}
	}
}

// The systemd unit restricts what the engine may do. systemd-analyze rates a unit from 0 (safe) to
// 10.
func TestSystemdConfinesTheEngine(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is missing")
	}
	const unit = "systemd/progressor.service"
	args := []string{"security", "--offline=yes", "--threshold=25", unit} // in tenths: 2.5
	output, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
	if strings.Contains(string(output), "unrecognized option") {
		t.Skip("systemd-analyze is older than version 250")
	}
	if err != nil {
		t.Errorf("systemd-analyze security %s: %v\n%s", unit, err, output)
	}
}

// A pod that migrates the schema is not restarted: its liveness probe begins when the startup probe
// has succeeded.
func TestMigrationIsNotInterrupted(t *testing.T) {
	text, err := os.ReadFile("helm/progressor/templates/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, probe, _ := strings.Cut(string(text), "startupProbe:")
	probe, _, _ = strings.Cut(probe, "livenessProbe:")
	if !strings.Contains(probe, "path: /livez") || !strings.Contains(probe, "failureThreshold: 720\n") {
		t.Errorf("the startup probe does not wait for a migration: %q", probe)
	}
}

// The engine rejects a file of master keys that all users can read. By default, Kubernetes makes
// the files of a secret readable for all users, so the chart sets another mode.
func TestMasterKeyIsPrivate(t *testing.T) {
	text, err := os.ReadFile("helm/progressor/templates/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, volume, _ := strings.Cut(string(text), "- name: master-key\n          secret:")
	if !strings.Contains(volume, "defaultMode: 0440\n") || !strings.Contains(string(text), "fsGroup: 65532\n") {
		t.Errorf("the engine cannot read the master key: %q", volume)
	}
}

// In every deployment, the stop timeout of the service is longer than the default drain timeout of
// the engine.
func TestGraceIsLongerThanDrain(t *testing.T) {
	for path, grace := range map[string]string{
		"systemd/progressor.service":  "TimeoutStopSec=45\n",
		"docker/compose.yaml":         "stop_grace_period: 45s\n",
		"helm/progressor/values.yaml": "terminationGracePeriodSeconds: 60\n",
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), grace) {
			t.Errorf("%s does not contain %q", path, grace)
		}
	}
}
