package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// cronProcessor completes the runs that crons start.
func cronProcessor() processor.Processor {
	return processor.Func(func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		return processor.Result().Complete().Done()
	})
}

// cronFires contains the fire times that each cron of a case must decide.
type cronFires struct {
	crons       int
	every       time.Duration
	first, last time.Time
}

func (f cronFires) times() int64 { return int64(f.last.Sub(f.first)/f.every) + 1 }

func (f cronFires) total() int64 { return f.times() * int64(f.crons) }

// crons measures how late crons with the same fire times make their decisions. It reads the times
// of the decisions from the ledger.
func (r *runner) crons(ctx context.Context, v variant) error {
	row := v.row(subjectEngine)
	err := r.onEngine(ctx, v.history, cronProcessor(), row, func(d *scratch, s *site) (acknowledged, error) {
		return nil, r.fireCrons(ctx, d, s, row)
	})
	r.report.Rows = append(r.report.Rows, row)
	return err
}

// probeCrons is the number of crons that are created and deleted to measure how fast that is.
const probeCrons = 200

func (r *runner) fireCrons(ctx context.Context, d *scratch, s *site, row *Row) error {
	c := r.command
	ahead, err := r.server.clockAhead(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	far := cronFires{every: c.CronsEvery, first: begin.Add(time.Hour), last: begin.Add(2*time.Hour + c.CronsEvery)}
	if err := makeCrons(ctx, s, "probe", probeCrons, far); err != nil {
		return err
	}
	needed := time.Since(begin) * time.Duration(c.Crons) / probeCrons
	err = each(ctx, probeCrons, fillers, func(ctx context.Context, i int) error {
		return s.crons.Delete(ctx,
			&progressorv1.DeleteCronRequest{Namespace: namespaceName, CronId: cronID("probe", i)}, process.Actor{})
	})
	if err != nil {
		return err
	}
	first := time.Now().Add(ahead + needed*3/2 + 3*time.Second).Truncate(time.Second).Add(time.Second)
	f := cronFires{crons: c.Crons, every: c.CronsEvery, first: first,
		last: first.Add(c.CronsEvery * time.Duration(c.CronsFires-1))}
	row.Note = fmt.Sprintf("%d crons, every %s, %d times; latency is decided_time - fire_time", f.crons, f.every,
		f.times())
	if err := makeCrons(ctx, s, "cron", f.crons, f); err != nil {
		return err
	}
	if err := r.settle(ctx, d.analyze); err != nil {
		return err
	}
	if time.Until(first.Add(-ahead)) < 0 {
		return errors.New("the first fire time came before all crons were created: the machine is too busy to measure")
	}
	if err := wait(ctx, time.Until(first.Add(-ahead))-20*time.Millisecond); err != nil {
		return err
	}
	conn, err := d.connect(ctx, engineSchema)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	spent, err := r.meterOf(s).measure(ctx, func() error { return f.awaitEnd(ctx, conn, ahead) })
	if err != nil {
		return err
	}
	return f.measure(ctx, conn, row, spent)
}

func cronID(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i) }

// makeCrons concurrently creates n crons that fire from the first to the last time.
func makeCrons(ctx context.Context, s *site, prefix string, n int, f cronFires) error {
	spec := &progressorv1.CronSpec{
		Expressions: []string{"@every " + f.every.String()}, StartTime: timestamppb.New(f.first),
		EndTime: timestamppb.New(f.last),
	}
	return each(ctx, n, fillers, func(ctx context.Context, i int) error {
		_, err := s.crons.Create(ctx, &progressorv1.CreateCronRequest{Cron: &progressorv1.Cron{
			Namespace: namespaceName, CronId: cronID(prefix, i), Spec: spec,
			Target: &progressorv1.CronTarget{
				Target: &progressorv1.CronTarget_StartProcess{StartProcess: &progressorv1.StartProcessTarget{}}},
		}}, process.Actor{})
		return err
	})
}

// cronsPoll is the interval between queries of the database while an engine works on crons. Each
// query counts what still waits.
const cronsPoll = 250 * time.Millisecond

// awaitEnd returns when all fire times have passed and nothing runs or waits. A cron that has ended
// has no timer.
func (f cronFires) awaitEnd(ctx context.Context, conn *pgx.Conn, ahead time.Duration) error {
	if err := wait(ctx, time.Until(f.last.Add(-ahead))); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	return waitNone(ctx, conn, cronsPoll, countUnfinished)
}

const (
	// The fire time is part of the key of the ledger. So if the number of rows is right, every fire
	// time has a row.
	countDecided = `
SELECT count(*), count(*) FILTER (WHERE decision = 'FIRED'), count(*) FILTER (WHERE status = 'SUCCESS')
  FROM cron_fires WHERE namespace = $1 AND count = 1 AND NOT manual AND fire_time BETWEEN $2 AND $3
   AND mod(extract(epoch FROM fire_time - $2), extract(epoch FROM $4::interval)) = 0`
	countFires = `SELECT count(*) FROM cron_fires WHERE namespace = $1`
	// countRuns counts the processes that the crons have started.
	countRuns    = `SELECT count(*) FROM processes WHERE namespace = $1 AND metadata ? 'progressor.cron_id'`
	readLateness = `SELECT fire_time, decided_time FROM cron_fires WHERE namespace = $1 ORDER BY fire_time`
)

// measure checks that each fire time of each cron was decided once and started at most one run. It
// reads how late the decisions were.
func (f cronFires) measure(ctx context.Context, conn *pgx.Conn, row *Row, spent spent) error {
	var decided, fired, succeeded, rows, runs int64
	if err := conn.QueryRow(ctx, countDecided, namespaceName, f.first, f.last, f.every).Scan(&decided, &fired,
		&succeeded); err != nil {
		return fmt.Errorf("count the decided fire times: %w", err)
	}
	if err := conn.QueryRow(ctx, countFires, namespaceName).Scan(&rows); err != nil {
		return fmt.Errorf("count the ledger: %w", err)
	}
	if err := conn.QueryRow(ctx, countRuns, namespaceName).Scan(&runs); err != nil {
		return fmt.Errorf("count the runs: %w", err)
	}
	if decided != f.total() || rows != f.total() || runs != fired || succeeded != fired {
		return fmt.Errorf("of %d fires %d were decided, in %d rows of the ledger; %d were FIRED, and there are %d "+
			"runs, of which %d succeeded",
			f.total(), decided, rows, fired, runs, succeeded)
	}
	latencies, busy, err := f.lateness(ctx, conn)
	if err != nil {
		return err
	}
	row.fill(f.total(), busy, latencies, spent)
	row.figure("fires that started a run", 100*float64(fired)/float64(f.total()), "%")
	row.figure("longest time until a decision", millis(latencies.quantile(1)), "ms")
	return nil
}

// lateness reads how long after its fire time each decision was made, and how long the decisions
// took in total.
func (f cronFires) lateness(ctx context.Context, conn *pgx.Conn) (*histogram, time.Duration, error) {
	var latencies histogram
	var busy time.Duration
	var until, fire, decided time.Time
	result, err := conn.Query(ctx, readLateness, namespaceName)
	if err != nil {
		return nil, 0, fmt.Errorf("read the ledger: %w", err)
	}
	_, err = pgx.ForEachRow(result, []any{&fire, &decided}, func() error {
		latencies.add(decided.Sub(fire))
		if until.Before(fire) {
			until = fire
		}
		if decided.After(until) {
			busy += decided.Sub(until)
			until = decided
		}
		return nil
	})
	return &latencies, busy, err
}
