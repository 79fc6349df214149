package client_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The programs in these pages are complete, so that readers can copy them, and go vet accepts them.
func TestProgramsOfThePages(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"workers.md", "security.md"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vetProgram(t, name)
		})
	}
}

// vetProgram runs go vet for the first program in a page of the docs.
func vetProgram(t *testing.T, name string) {
	t.Helper()
	page, err := os.ReadFile("../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	_, program, found := strings.Cut(string(page), "```go\npackage main\n")
	program, _, closed := strings.Cut(program, "\n```\n")
	if !found || !closed {
		t.Fatalf("docs/%s has no Go block that begins with package main", name)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	// go vet reads the program as examples/main.go of the module. The directory contains no other
	// Go file.
	replace, err := json.Marshal(
		map[string]map[string]string{"Replace": {filepath.Join(root, "examples", "main.go"): file}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{file: []byte("package main\n" + program + "\n"), overlay: replace} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	vet := exec.CommandContext(t.Context(), "go", "vet", "-overlay", overlay, "./examples")
	vet.Dir = root
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
