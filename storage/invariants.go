package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// maxViolations bounds what one check reports: a database that is broken at one place is often broken at many.
const maxViolations = 1000

// Violation is a process that breaks an invariant.
type Violation struct{ Invariant, Namespace, ProcessID, Detail string }

func (v Violation) String() string {
	return fmt.Sprintf("%s: process %s/%s: %s", v.Invariant, v.Namespace, v.ProcessID, v.Detail)
}

// Report is what a check of invariants found.
type Report struct {
	// Violations, at most 1000 of them; empty: every invariant holds.
	Violations []Violation
	// Looked tells for each invariant, by name, how many rows it has looked at.
	Looked map[string]int64
}

// CheckInvariants checks what must hold at any moment, also of a database at work: see sql/invariants.sql. db needs the search_path
// progressor. It reads every table in full: not for the hot pool.
func CheckInvariants(ctx context.Context, db DB) (Report, error) {
	q := dbsqlc.New()
	rows, err := q.FindViolations(ctx, db, maxViolations)
	if err != nil {
		return Report{}, mapped("check invariants", err)
	}
	counts, err := q.CountLooked(ctx, db)
	if err != nil {
		return Report{}, mapped("check invariants", err)
	}
	report := Report{Looked: make(map[string]int64, len(counts))}
	for _, r := range rows {
		report.Violations = append(report.Violations, Violation(r))
	}
	for _, c := range counts {
		report.Looked[c.Invariant] = c.N
	}
	return report, nil
}

// CheckQuiescent checks that nothing stands that could go on, after all work is done and every node has had its turn: no waiting
// task or due timer that nobody has taken for late (10 s is a good value), no lease of a node that has not beaten for zombieAfter,
// and no attempt that is late past its deadline. Paused namespaces are left out. On a database at work it finds what is slow.
func CheckQuiescent(ctx context.Context, db DB, late, zombieAfter time.Duration) (Report, error) {
	q := dbsqlc.New()
	rows, err := q.FindStanding(ctx, db, dbsqlc.FindStandingParams{
		LateUs: late.Microseconds(), ZombieAfterUs: zombieAfter.Microseconds(), Lim: maxViolations,
	})
	if err != nil {
		return Report{}, mapped("check quiescence", err)
	}
	counts, err := q.CountStanding(ctx, db)
	if err != nil {
		return Report{}, mapped("check quiescence", err)
	}
	report := Report{Looked: make(map[string]int64, len(counts))}
	for _, r := range rows {
		report.Violations = append(report.Violations, Violation(r))
	}
	for _, c := range counts {
		report.Looked[c.Invariant] = c.N
	}
	return report, nil
}
