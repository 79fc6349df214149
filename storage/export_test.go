package storage

import "github.com/jackc/pgx/v5"

// HotConfig is how lanes and scans connect, for tests that look at their plans.
func HotConfig(dsn string) (*pgx.ConnConfig, error) {
	return connConfig(dsn, hotSettings, "progressor test")
}

// Whole has a store that is not used yet do without CaptureCall and SaveFinished: what comes first holds the locks until it is stored.
func (s *Store) Whole() *Store {
	s.wholes = true
	return s
}

// Pending is how many operations are under way in the lanes.
func (s *Store) Pending() int64 { return s.pending.Load() }
