package storagetest

import (
	"strings"
	"testing"
)

// withoutFastPath is the name of the tests that call RunWithoutFastPath.
const withoutFastPath = "TestWithoutFastPath"

// RunWithoutFastPath runs tests again, with the fast path off. The calling test must be named
// TestWithoutFastPath, because WithoutFastPath recognizes the tests by their names.
func RunWithoutFastPath(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	if t.Name() != withoutFastPath {
		t.Fatalf("RunWithoutFastPath: the test must be named %s (got %s)", withoutFastPath, t.Name())
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

// WithoutFastPath reports whether RunWithoutFastPath runs a test. Tests set
// storage.Config.WithoutFastPath to the result.
func WithoutFastPath(t testing.TB) bool { return strings.HasPrefix(t.Name(), withoutFastPath+"/") }
