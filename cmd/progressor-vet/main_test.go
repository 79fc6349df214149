package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const testdata = "../../processor/durable/durablevet/testdata"

var path = regexp.MustCompile(`(?m)^\S*order/order\.go`)

// go vet accepts the command as its -vettool. It then reports the mistakes that docs/functions.md
// shows, and succeeds for correct code.
func TestVet(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "progressor-vet")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	vet := func(name string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "go", "vet", "-vettool="+tool, "./"+name)
		cmd.Dir = testdata
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := vet("correct"); err != nil {
		t.Errorf("go vet of correct code: %v\n%s", err, out)
	}
	out, err := vet("order")
	if err == nil {
		t.Error("go vet of code with mistakes succeeds")
	}
	page, err := os.ReadFile("../../docs/functions.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(filepath.Join(testdata, "order", "order.go"))
	if err != nil {
		t.Fatal(err)
	}
	function, _, _ := strings.Cut(string(code[strings.Index(string(code), "func order("):]), "\n}\n")
	// The output can come from the cache of go vet, with the paths of another clone of the
	// repository.
	out = path.ReplaceAllString(out, "order/order.go")
	_, found, _ := strings.Cut(out, "order/order.go") // the name of the package can precede it
	for _, want := range []string{function + "\n}\n```", "```\norder/order.go" + found + "```"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("docs/functions.md does not contain:\n%s", want)
		}
	}
}
