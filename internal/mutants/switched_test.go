package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const original = `package main

import "fmt"

type list[T any] []T

const query = ` + "`-- name: Query :one\nSELECT 1`" + `

func (l *list[T]) add(_ int, items ...T) (n int, err error) {
	*l = append(*l, items...)
	return len(*l), nil
}

// largest returns the largest number.
func largest[A, B int | float64](a A, b B) float64 {
	return max(float64(a), float64(b))
}

func say(text string) { fmt.Print(text, " ") }

func main() {
	var l list[string]
	n, err := l.add(0, "a", "b")
	say("said")
	fmt.Println(n, err, largest(1, 2.5), len(query))
}
`

// Each bug of a program is switched on by its number, and a bug that does not compile is found.
func TestSwitchedBugs(t *testing.T) {
	bugs := []struct{ old, planted, prints string }{
		{"return len(*l), nil", "return len(*l) + 1, nil", "said 3 <nil> 2.5 28"},
		{"return max(", "return min(", "said 2 <nil> 1 28"},
		{"SELECT 1", "SELECT 1000", "said 2 <nil> 2.5 31"},
		{`fmt.Print(text, " ") }`, "fmt.Print(len(text)) }", "42 <nil> 2.5 28"},
		{"append(*l, items...)", "append(*l, items[0])", "said 1 <nil> 2.5 28"},
		{"return max(float64(a), float64(b))", "return a", ""},
	}
	f := &switchedFile{src: []byte(original), decls: map[int][]switched{}}
	for n, b := range bugs {
		was, is, ok := changedDeclaration("main.go", f.src, []byte(strings.Replace(original, b.old, b.planted, 1)))
		if !ok {
			t.Fatalf("%q cannot be switched on", b.planted)
		}
		if b.prints != "" {
			f.decls[was.index] = append(f.decls[was.index], switched{n + 1, was, is})
		}
	}
	code, _ := f.source()
	program := filepath.Join(t.TempDir(), "program")
	if output := buildMain(t, program, code); len(output) > 0 {
		t.Fatalf("build: %s\n%s", output, code)
	}
	for n, b := range append(bugs[:len(bugs)-1:len(bugs)-1], struct{ old, planted, prints string }{}) {
		run := exec.CommandContext(t.Context(), program)
		run.Env = append(os.Environ(), bugVariable+"="+string(rune('1'+n)))
		want := b.prints
		if want == "" {
			run.Env, want = append(os.Environ(), bugVariable+"=0"), "said 2 <nil> 2.5 28"
		}
		if output, err := run.CombinedOutput(); err != nil || strings.TrimSpace(string(output)) != want {
			t.Errorf("%q: printed %q, %v; want %q", b.planted, output, err, want)
		}
	}

	was, is, _ := changedDeclaration("main.go", f.src,
		[]byte(strings.Replace(original, bugs[5].old, bugs[5].planted, 1)))
	f.decls[was.index] = append(f.decls[was.index], switched{6, was, is})
	code, where := f.source()
	output, broken := buildMain(t, program, code), map[int]bool{}
	if !blame(output, map[string][]lines{mainFile(program): where}, broken) || len(broken) != 1 || !broken[6] {
		t.Errorf("blamed %v by %s, want bug 6", broken, output)
	}
}

// Changes of more than one body, and functions that look at their caller, are not switched on.
func TestNotSwitched(t *testing.T) {
	for _, change := range [][2]string{
		{"(_ int, items ...T)", "(_ int64, items ...T)"},
		{"type list[T any] []T", "type list[T any] []*T"},
		{`say("said")`, `defer func() { _ = recover() }(); say("said")`},
		{"func say(text string) { fmt.Print(text, \" \") }", ""},
		{"say", "tell"},
	} {
		before, after := original, strings.ReplaceAll(original, change[0], change[1])
		if strings.Contains(after, "recover()") {
			before, after = after, strings.Replace(after, "a\", \"b", "a\", \"c", 1)
		}
		if _, _, ok := changedDeclaration("main.go", []byte(before), []byte(after)); ok {
			t.Errorf("%q can be switched on", change)
		}
	}
	if _, _, ok := changedDeclaration("a.sql", []byte("SELECT 1"), []byte("SELECT 2")); ok {
		t.Error("a file that is not Go can be switched on")
	}
}

func mainFile(program string) string { return filepath.Join(filepath.Dir(program), "main.go") }

// buildMain builds a program with the variable that selects a bug. It returns the errors.
func buildMain(t *testing.T, program string, code []byte) []byte {
	t.Helper()
	selector := filepath.Join(filepath.Dir(program), "planted.go")
	for file, content := range map[string][]byte{mainFile(program): code, selector: selectorCode(code)} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, mainFile(program), selector)
	output, err := build.CombinedOutput()
	if err == nil {
		return nil
	}
	return output
}
