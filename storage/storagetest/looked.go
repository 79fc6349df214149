//go:build unix

package storagetest

import (
	"flag"
	"slices"
	"sync"
	"testing"
)

// rowsLooked adds up, over all tests of a binary, how many rows each invariant has looked at.
type rowsLooked struct {
	mutex sync.Mutex
	rows  map[string]int64
}

var looked = rowsLooked{rows: map[string]int64{}}

func (l *rowsLooked) add(rows map[string]int64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for invariant, n := range rows {
		l.rows[invariant] += n
	}
}

// idle lists the invariants that have looked at nothing. Where no test had a database there are none.
func (l *rowsLooked) idle() []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var idle []string
	for invariant, n := range l.rows {
		if n == 0 {
			idle = append(idle, invariant)
		}
	}
	slices.Sort(idle)
	return idle
}

// runsAll tells whether this run was asked for all tests.
func runsAll() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return !testing.Short()
}
