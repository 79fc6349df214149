package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// maxViolations is the maximum number of violations that one check reports, because one defect
// often causes many.
const maxViolations = 1000

// Violation is a process that violates an invariant.
type Violation struct{ Invariant, Namespace, ProcessID, Detail string }

func (v Violation) String() string {
	return fmt.Sprintf("%s: process %s/%s: %s", v.Invariant, v.Namespace, v.ProcessID, v.Detail)
}

// Report is the result of a check of invariants.
type Report struct {
	// Violations has at most 1,000 violations. It is empty if all invariants hold.
	Violations []Violation
	// Checked is the number of rows that were checked, by invariant.
	Checked map[string]int64
}

// CheckInvariants checks the rules that hold at any time, even while engines use the database: see
// sql/invariants.sql, sql/job_invariants.sql and sql/change_invariants.sql. All statements must
// read one snapshot. db can be a connection, a pool, or a transaction with the isolation level
// REPEATABLE READ. On a connection or a pool, CheckInvariants begins a transaction. The search_path
// of db must be progressor. CheckInvariants reads all tables completely, so db must not be the hot
// pool.
func CheckInvariants(ctx context.Context, db DB) (Report, error) {
	return withSnapshot(ctx, db, "check invariants", checkInvariants)
}

// withSnapshot calls check with a transaction that reads one snapshot. If db is a connection or a
// pool, it begins this transaction. Otherwise it uses db itself. The transaction turns JIT
// compilation off: PostgreSQL needed 7 s of CPU time to compile the 600 functions of
// FindViolations, which then ran for 0.4 s.
func withSnapshot(
	ctx context.Context, db DB, op string, check func(context.Context, DB) (Report, error),
) (Report, error) {
	if b, ok := db.(interface {
		BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
	}); ok {
		tx, err := b.BeginTx(ctx, readOnly)
		if err != nil {
			return Report{}, mapped(op, err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		db = tx
	}
	if _, err := db.Exec(ctx, "SET LOCAL jit = off"); err != nil {
		return Report{}, mapped(op, err)
	}
	return check(ctx, db)
}

func checkInvariants(ctx context.Context, db DB) (Report, error) {
	q := dbsqlc.New()
	rows, err := q.FindViolations(ctx, db, maxViolations)
	if err != nil {
		return Report{}, mapped("check invariants", err)
	}
	kindRows, err := q.FindKindViolations(ctx, db, int32(maxViolations-len(rows)))
	if err != nil {
		return Report{}, mapped("check invariants", err)
	}
	changeRows, err := q.FindChangeViolations(ctx, db, int32(maxViolations-len(rows)-len(kindRows)))
	if err != nil {
		return Report{}, mapped("check invariants", err)
	}
	counts, err := q.CountInvariantRows(ctx, db)
	if err != nil {
		return Report{}, mapped("check invariants", err)
	}
	report := Report{Checked: make(map[string]int64, len(counts))}
	for _, r := range rows {
		report.Violations = append(report.Violations, Violation(r))
	}
	for _, r := range kindRows {
		report.Violations = append(report.Violations, Violation(r))
	}
	for _, r := range changeRows {
		report.Violations = append(report.Violations, Violation(r))
	}
	for _, c := range counts {
		report.Checked[c.Invariant] = c.N
	}
	return report, nil
}

// CheckQuiescent checks that no work is stuck. It reports tasks and due timers that have waited for
// longer than late (10 s is a good value), tasks on nodes without a heartbeat for zombieAfter, and
// attempts that have exceeded their deadline by late. It skips paused namespaces and jobs of paused
// names. While engines are busy, it also reports tasks that are merely slow.
func CheckQuiescent(ctx context.Context, db DB, late, zombieAfter time.Duration) (Report, error) {
	return withSnapshot(ctx, db, "check quiescence", func(ctx context.Context, db DB) (Report, error) {
		return checkQuiescent(ctx, db, late, zombieAfter)
	})
}

func checkQuiescent(ctx context.Context, db DB, late, zombieAfter time.Duration) (Report, error) {
	q := dbsqlc.New()
	rows, err := q.FindStuck(ctx, db, dbsqlc.FindStuckParams{
		LateUs: late.Microseconds(), ZombieAfterUs: zombieAfter.Microseconds(), Lim: maxViolations,
	})
	if err != nil {
		return Report{}, mapped("check quiescence", err)
	}
	counts, err := q.CountChecked(ctx, db)
	if err != nil {
		return Report{}, mapped("check quiescence", err)
	}
	report := Report{Checked: make(map[string]int64, len(counts))}
	for _, r := range rows {
		report.Violations = append(report.Violations, Violation(r))
	}
	for _, c := range counts {
		report.Checked[c.Invariant] = c.N
	}
	return report, nil
}
