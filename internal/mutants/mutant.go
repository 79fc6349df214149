package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant is one planted bug.
type mutant struct {
	name     string
	breaks   string // the rule that it breaks
	file     string // Go, a migration, or a statement in sql
	old      string // occurs in file exactly once
	planted  string
	packages string // packages whose tests must catch it, as for go test
	run      string // -run; if empty, all tests of the packages
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// plant runs the tests with the planted bug. It returns the first test that failed, or "" if none
// failed.
func (m *mutant) plant(ctx context.Context, root string) (caught string, err error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, _, changed, err := m.change(root)
	if err != nil {
		return "", err
	}
	over, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	err = errors.Join(os.WriteFile(over, changed, 0o600),
		writeOverlay(overlay, map[string]string{filepath.Join(root, file): over}))
	if err != nil {
		return "", err
	}
	args := []string{"test", "-overlay", overlay, "-count=1", "-failfast", "-timeout", "2m", "-vet=off"}
	if m.run != "" {
		args = append(args, "-run", m.run)
	}
	test := exec.CommandContext(ctx, "go", append(args, strings.Fields(m.packages)...)...)
	test.Dir = root
	output, err := test.CombinedOutput()
	if bytes.Contains(output, []byte("[build failed]")) || bytes.Contains(output, []byte("[setup failed]")) {
		return "", fmt.Errorf("what is planted does not compile:\n%s", output)
	}
	return firstFailure(ctx, output, err)
}

// writeOverlay writes the file for go build -overlay.
func writeOverlay(file string, replace map[string]string) error {
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

// firstFailure returns the first test that failed, from the output and the error of a test program.
func firstFailure(ctx context.Context, output []byte, err error) (caught string, _ error) {
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return "", nil
	}
	if name := failed.FindSubmatch(output); name != nil {
		return string(name[1]), nil
	}
	if bytes.Contains(output, []byte("panic: test timed out")) {
		return "a test that never ended", nil
	}
	return "", fmt.Errorf("run the tests: %w:\n%s", err, output)
}

// change returns a file of the module, without and with the bug in it. For a statement in sql, this
// is the code that sqlc has generated.
func (m *mutant) change(root string) (file string, without, with []byte, err error) {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", nil, nil, err
	}
	if n := bytes.Count(source, []byte(m.old)); n != 1 {
		err := fmt.Errorf("%q occurs %d times in %s, want once: the source has changed", m.old, n, m.file)
		return "", nil, nil, err
	}
	if path.Dir(m.file) != "sql" {
		return m.file, source, bytes.Replace(source, []byte(m.old), []byte(m.planted), 1), nil
	}
	file = "storage/internal/dbsqlc/" + path.Base(m.file) + ".go"
	code, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return "", nil, nil, err
	}
	with, err = m.changeStatement(string(source), string(code))
	return file, code, with, err
}

var (
	statementName   = regexp.MustCompile(`(?m)^-- name: .*`)
	sqlComment      = regexp.MustCompile(`--.*`)
	namedParameter  = regexp.MustCompile(`@\w+`)
	numberParameter = regexp.MustCompile(`\$\d+`)
)

// changeStatement returns the code that sqlc has generated from a source, with the bug in it. sqlc
// removes comments and numbers the parameters, but changes little else.
func (m *mutant) changeStatement(source, code string) ([]byte, error) {
	above, _, _ := strings.Cut(source, m.old)
	names := statementName.FindAllStringIndex(above, -1)
	if names == nil {
		return nil, fmt.Errorf("%s: %q is not in a statement", m.file, m.old)
	}
	begin, end := names[len(names)-1][0], names[len(names)-1][1]
	name := source[begin:end] + "\n"
	from, _, _ := strings.Cut(source[end:], "\n-- name: ")
	before, rest, found := strings.Cut(code, name)
	to, after, _ := strings.Cut(rest, "`")
	named := namedParameter.FindAllString(sqlComment.ReplaceAllString(from, ""), -1)
	numbered := numberParameter.FindAllString(to, -1)
	if !found || len(named) != len(numbered) {
		return nil, fmt.Errorf("%s: the generated code is not of this source: %q", m.file, name)
	}
	numbers := map[string]string{}
	for n, parameter := range named {
		numbers[parameter] = numbered[n]
	}
	generated := func(text string) string {
		return namedParameter.ReplaceAllStringFunc(text, func(p string) string { return numbers[p] })
	}
	if n := strings.Count(to, generated(m.old)); n != 1 {
		return nil, fmt.Errorf("%q occurs %d times in the code of %q, want once", generated(m.old), n, name)
	}
	to = strings.Replace(to, generated(m.old), generated(m.planted), 1)
	return []byte(before + name + to + "`" + after), nil
}
