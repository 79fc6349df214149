//go:build unix

package storagetest

import (
	"slices"
	"testing"
)

func TestInvariantThatNeverLookedIsNamed(t *testing.T) {
	l := rowsLooked{rows: map[string]int64{}}
	if idle := l.idle(); len(idle) > 0 {
		t.Errorf("without a database, %q are reported as idle", idle)
	}
	l.add(map[string]int64{"seen once": 1, "b never": 0, "a never": 0})
	l.add(map[string]int64{"seen once": 0, "b never": 0, "a never": 0})
	if idle := l.idle(); !slices.Equal(idle, []string{"a never", "b never"}) {
		t.Errorf("reported as idle: %q", idle)
	}
}
