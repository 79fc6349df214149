package main

import (
	"path/filepath"
	"testing"
)

// Every bug can still be planted: its place is in the source, and what is planted differs.
func TestMutantsFit(t *testing.T) {
	names := map[string]bool{}
	for _, m := range all() {
		if names[m.name] {
			t.Errorf("%s: the name is taken", m.name)
		}
		names[m.name] = true
		if m.old == m.planted || m.breaks == "" || m.packages == "" {
			t.Errorf("%s: plants nothing, or does not say what it breaks or who is to catch it", m.name)
		}
		if _, err := m.change(filepath.Join("..", "..", m.file)); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
