//go:build unix

package storagetest

import (
	"slices"
	"testing"
)

func TestInvariantWithoutRowsIsReported(t *testing.T) {
	l := checkedRows{rows: map[string]int64{}}
	if unchecked := l.unchecked(); len(unchecked) > 0 {
		t.Errorf("without a database, %q were reported as unchecked", unchecked)
	}
	l.add(map[string]int64{"seen once": 1, "b never": 0, "a never": 0})
	l.add(map[string]int64{"seen once": 0, "b never": 0, "a never": 0})
	if unchecked := l.unchecked(); !slices.Equal(unchecked, []string{"a never", "b never"}) {
		t.Errorf("reported: %q", unchecked)
	}
}
