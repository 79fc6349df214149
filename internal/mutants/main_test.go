package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every bug can still be planted: its place exists in the source, the planted text differs from it,
// and the tests that must find the bug exist.
func TestMutantsFit(t *testing.T) {
	names, tests := map[string]bool{}, map[string][]string{}
	for _, m := range all() {
		if names[m.name] {
			t.Errorf("%s: the name is taken", m.name)
		}
		names[m.name] = true
		if m.old == m.planted || m.breaks == "" || m.packages == "" {
			t.Errorf("%s: has no change, no description, or no test that must catch it", m.name)
		}
		if _, _, _, err := m.change(filepath.Join("..", "..")); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		for _, pattern := range strings.Split(m.run, "|") {
			if !selects(t, tests, m.packages, pattern) {
				t.Errorf("%s: %q selects no test of %s", m.name, pattern, m.packages)
			}
		}
	}
}

var testName = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// selects reports whether a pattern of go test -run selects a test of one of the packages. It
// ignores the part of the pattern that selects subtests. The map tests contains the names of the
// tests in the packages that were read.
func selects(t *testing.T, tests map[string][]string, packages, pattern string) bool {
	t.Helper()
	top, _, _ := strings.Cut(pattern, "/")
	selected := regexp.MustCompile(top)
	for _, dir := range strings.Fields(packages) {
		if _, read := tests[dir]; !read {
			tests[dir] = testsOf(t, dir)
		}
		for _, name := range tests[dir] {
			if selected.MatchString(name) {
				return true
			}
		}
	}
	return false
}

func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range testName.FindAllSubmatch(content, -1) {
			names = append(names, string(name[1]))
		}
	}
	return names
}
