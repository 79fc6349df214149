package bench

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// meter measures the cost of a piece of work: bytes of WAL, CPU, group commits. Values that cannot
// be measured are unknown.
type meter struct {
	conn       *pgx.Conn // to the measured server; nothing else uses it in the meantime
	postmaster int       // 0 if it is not on this machine
	engineCPU  func() (time.Duration, error)
	flushes    func() (items, flushes float64, err error) // nil if there are none
	began      sample
}

// sample is the state of all counters. Negative values are unknown.
type sample struct {
	wal            int64
	postgres       time.Duration
	engine         time.Duration
	items, flushes float64
}

// spent is the difference of two samples. nil values are unknown.
type spent struct {
	elapsed      time.Duration
	walBytes     *float64
	postgresTime *time.Duration
	engineTime   *time.Duration
	flushItems   *float64 // mean of one group commit
}

// measure does some work and returns what it cost.
func (m *meter) measure(ctx context.Context, work func() error) (spent, error) {
	if err := m.begin(ctx); err != nil {
		return spent{}, err
	}
	begin := time.Now()
	if err := work(); err != nil {
		return spent{}, err
	}
	elapsed := time.Since(begin)
	s, err := m.end(ctx)
	s.elapsed = elapsed
	return s, err
}

func (m *meter) begin(ctx context.Context) error {
	var err error
	m.began, err = m.sample(ctx)
	return err
}

func (m *meter) end(ctx context.Context) (spent, error) {
	after, err := m.sample(ctx)
	if err != nil {
		return spent{}, err
	}
	before := m.began
	var s spent
	if before.wal >= 0 && after.wal >= 0 {
		s.walBytes = new(float64(after.wal - before.wal))
	}
	if before.postgres >= 0 && after.postgres >= 0 {
		s.postgresTime = new(after.postgres - before.postgres)
	}
	if before.engine >= 0 && after.engine >= 0 {
		s.engineTime = new(after.engine - before.engine)
	}
	if flushes := after.flushes - before.flushes; flushes > 0 {
		s.flushItems = new((after.items - before.items) / flushes)
	}
	return s, nil
}

func (m *meter) sample(ctx context.Context) (sample, error) {
	s := sample{wal: -1, postgres: -1, engine: -1}
	if err := m.conn.QueryRow(ctx,
		`SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint`).Scan(&s.wal); err != nil {
		return s, fmt.Errorf("read the position of the log: %w", err)
	}
	if m.postmaster != 0 {
		if used, err := postgresCPU(m.postmaster); err == nil {
			s.postgres = used
		}
	}
	if m.engineCPU != nil {
		if used, err := m.engineCPU(); err == nil {
			s.engine = used
		}
	}
	if m.flushes != nil {
		var err error
		if s.items, s.flushes, err = m.flushes(); err != nil {
			return s, fmt.Errorf("read the metrics of the group commit: %w", err)
		}
	}
	return s, nil
}

// ownCPU returns the CPU time of this process.
func ownCPU() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// flushMetric is the histogram of the operations in one group commit.
const flushMetric = "progressor_flush_items"

// flushesOf reads the histogram of an engine in this process.
func flushesOf(gatherer prometheus.Gatherer) func() (items, flushes float64, err error) {
	return func() (items, flushes float64, err error) {
		families, err := gatherer.Gather()
		if err != nil {
			return 0, 0, err
		}
		for _, family := range families {
			if family.GetName() == flushMetric {
				items, flushes = sumHistogram(family)
			}
		}
		return items, flushes, nil
	}
}

// spentOn measures the cost of some work, starting from an idle database.
func (r *runner) spentOn(
	ctx context.Context, d *scratch, s *site, operations int64, row *Row, work func() error,
) error {
	if err := r.settle(ctx, d.analyze); err != nil {
		return err
	}
	spent, err := r.meterOf(s).measure(ctx, work)
	row.fill(operations, spent.elapsed, nil, spent)
	return err
}
