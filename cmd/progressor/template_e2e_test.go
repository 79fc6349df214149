package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A template of the configuration file is stored at startup only if it is new or has changed.
// Errors in templates name their line.
func TestTemplatesOfTheConfigurationFile(t *testing.T) {
	t.Parallel()
	text := "namespaces: [{namespace: play, processor: {pull: {}}}]\ntemplates:\n  - namespace: play\n" +
		"    type: order\n    steps: [{step_id: a, job: {}}]\n"
	dir := t.TempDir()
	write := func(text string) string {
		file := filepath.Join(dir, "progressor.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	for _, want := range []string{"order 1 enabled 1", "order 1 enabled 1", "order 2 enabled 1"} {
		if strings.HasPrefix(want, "order 2") {
			text = strings.ReplaceAll(text, "step_id: a", "step_id: b")
		}
		d := background(t, nil, "serve", "-c", write(text), "--listen", "127.0.0.1:0", "--db.dsn", dsn)
		clitest.WantLines(t, d.Client.OK(t, "template", "list", "play"), want)
		d.Signals <- os.Interrupt
		d.Await(t)
	}
	for _, c := range []struct{ from, to, want string }{
		{"step_id: b", "stepid: b", "line 5: templates[0].steps[0].stepid: unknown field"},
		{"job: {}", "job: {}, depends_on: [x]", "line 5: templates[0].steps[0].depends_on"},
		{"type: order", "name: order", "line 3: templates[0].type is missing"},
	} {
		file := write(strings.ReplaceAll(text, c.from, c.to))
		if r := (clitest.Program{Commands: newCommands}).Run(t, "config", "check", "-c", file, "--db.dsn",
			dsn); r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%+v, want %s", r, c.want)
		}
	}
	out := clitest.Program{Commands: newCommands}.OK(t, "config", "print", "-c", write(text), "--db.dsn", dsn)
	if !strings.Contains(out, "templates:") || !strings.Contains(out, "type: order") {
		t.Error(out)
	}
}
