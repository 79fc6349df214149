package main

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// referenceMetrics are the metrics of the reference with their labels, from create_metrics in
// src/progressor_app.erl of valitydev/progressor.
var referenceMetrics = map[string]string{
	"progressor_calls_scanning_duration_ms":    "prg_namespace",
	"progressor_timers_scanning_duration_ms":   "prg_namespace",
	"progressor_zombie_collection_duration_ms": "prg_namespace",
	"progressor_request_preparing_duration_ms": "prg_namespace task_type",
	"progressor_task_processing_duration_ms":   "prg_namespace task_type",
	"progressor_task_completion_duration_ms":   "prg_namespace completion_type",
	"progressor_process_removing_duration_ms":  "prg_namespace",
	"progressor_notification_duration_ms":      "prg_namespace notification_type",
}

// The table of docs/operations.md contains the eight histograms of the reference, with their labels
// in both systems, and every value of a label that differs. Every histogram of the engine has these
// labels and values.
func TestMetricsOfTheReference(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(readPage(t, "docs/operations.md"), "\n### Dashboards of the reference\n")
	section, _, _ = strings.Cut(section, "\n### ")
	here := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `(progressor_[a-z_]+)` \\| ([a-z_`, ]+) \\| ([a-z_`, ]+) \\|$")
	words := strings.NewReplacer("`", "", ",", "")
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		if got := words.Replace(m[2]); got != referenceMetrics[m[1]] {
			t.Errorf("%s has the labels %q in the reference, but %q in the table", m[1], referenceMetrics[m[1]], got)
		}
		here[m[1]] = words.Replace(m[3])
	}
	for name := range referenceMetrics {
		if here[name] == "" {
			t.Errorf("the table does not list %s", name)
		}
	}
	values := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z_]+)`|\"([a-z_]+)\"").FindAllStringSubmatch(section, -1) {
		values[m[1]+m[2]] = true
	}
	d := referenceEngine(t)
	clitest.Eventually(t, "every histogram is exported", func() error {
		_, scrape := clitest.Fetch(t, d.URL+"/metrics")
		labels, missing := histogramLabels(scrape), []string{}
		for name, want := range here {
			if len(labels[name]) == 0 {
				missing = append(missing, name)
				continue
			}
			if got := strings.Join(slices.Sorted(maps.Keys(labels[name])), " "); got != sortedWords(want) {
				t.Fatalf("%s has the labels %q, but %q in the table", name, got, want)
			}
			for label, got := range labels[name] {
				for value := range got {
					if label != "namespace" && label != "task_type" && !values[value] {
						t.Fatalf("%s has %s=%q, which the section does not have", name, label, value)
					}
				}
			}
		}
		completions := labels["progressor_task_completion_duration_ms"]["completion_type"]
		for _, want := range []string{"continue", "suspend", "unlock", "error", "remove"} {
			if !completions[want] {
				missing = append(missing, "completion_type "+want)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("missing: %v", missing)
		}
		return nil
	})
}

// referenceEngine runs an engine until each kind of completion was requested.
func referenceEngine(t *testing.T) *clitest.Daemon {
	t.Helper()
	server := httptest.NewServer(processor.Handler(processor.Func(
		func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			switch string(r.GetArgs()) {
			case "fail":
				return nil, processor.Fail("broken", "as requested").NonRetryable()
			case "later":
				return processor.Result().SetTimerAfter(time.Hour).Done()
			case "now":
				return processor.Result().SetTimerAfter(0).Done()
			case "remove":
				return processor.Result().RemoveAfter(0).Done()
			}
			return processor.Result().Done()
		})))
	t.Cleanup(server.Close)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "ref", "--connect-url", server.URL)
	api := client.New(d.URL)
	for _, args := range []string{"none", "later", "now", "fail", "remove"} {
		start := &progressorv1.StartRequest{Namespace: "ref", ProcessId: args}
		if _, err := api.Start(t.Context(), start); err != nil {
			t.Fatal(err)
		}
		call := &progressorv1.CallRequest{Namespace: "ref", ProcessId: args, Args: []byte(args)}
		if _, err := api.Call(t.Context(), call); (err != nil) != (args == "fail") {
			t.Fatalf("%s: %v", args, err)
		}
	}
	remove := &progressorv1.RemoveProcessRequest{Namespace: "ref", ProcessId: "none"}
	if _, err := api.Process.RemoveProcess(t.Context(), remove); err != nil {
		t.Fatal(err)
	}
	return d
}

// histogramLabels returns the values of each label of each histogram in a scrape, without le.
func histogramLabels(scrape string) map[string]map[string]map[string]bool {
	found := map[string]map[string]map[string]bool{}
	label := regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	for _, line := range regexp.MustCompile(`(?m)^([a-z_]+)_count\{(.*)\} `).FindAllStringSubmatch(scrape, -1) {
		if found[line[1]] == nil {
			found[line[1]] = map[string]map[string]bool{}
		}
		for _, m := range label.FindAllStringSubmatch(line[2], -1) {
			if found[line[1]][m[1]] == nil {
				found[line[1]][m[1]] = map[string]bool{}
			}
			found[line[1]][m[1]][m[2]] = true
		}
	}
	return found
}

func sortedWords(text string) string {
	words := strings.Fields(text)
	slices.Sort(words)
	return strings.Join(words, " ")
}
