//go:build unix

package storagetest

import (
	"flag"
	"slices"
	"sync"
	"testing"
)

// checkedRows adds up the number of rows that each invariant has checked over all tests of a
// binary.
type checkedRows struct {
	mutex sync.Mutex
	rows  map[string]int64
}

var allChecked = checkedRows{rows: map[string]int64{}}

func (l *checkedRows) add(rows map[string]int64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for invariant, n := range rows {
		l.rows[invariant] += n
	}
}

// unchecked returns the invariants that have checked no rows. It returns none if no test had a
// database.
func (l *checkedRows) unchecked() []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var unchecked []string
	for invariant, n := range l.rows {
		if n == 0 {
			unchecked = append(unchecked, invariant)
		}
	}
	slices.Sort(unchecked)
	return unchecked
}

// runsAll reports whether all tests were selected.
func runsAll() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return !testing.Short()
}
