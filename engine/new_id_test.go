package engine

import "testing"

func TestGeneratedIDsGrow(t *testing.T) {
	last := ""
	for range 1000 {
		id, err := NewID()
		if err != nil || id <= last || len(id) != 21 {
			t.Fatalf("%q after %q, %v", id, last, err)
		}
		last = id
	}
}
