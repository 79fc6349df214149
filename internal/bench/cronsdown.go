package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	// downFor is how long the engine is down.
	downFor = time.Hour
	// downCatchUp is the catchup_limit of the policy CATCH_UP_LIMITED.
	downCatchUp = 10
	// downWait is how long the crons may take to catch up.
	downWait = 5 * time.Minute
)

// cronsDown measures, for each misfire policy, how long crons take to catch up after their engine
// was down for an hour.
func (r *runner) cronsDown(ctx context.Context, v variant) error {
	for _, policy := range []*progressorv1.CronPolicy{
		{MisfirePolicy: progressorv1.MisfirePolicy_MISFIRE_POLICY_FIRE_NOW},
		{MisfirePolicy: progressorv1.MisfirePolicy_MISFIRE_POLICY_SKIP,
			MisfireThreshold: durationpb.New(5 * time.Second)},
		{MisfirePolicy: progressorv1.MisfirePolicy_MISFIRE_POLICY_CATCH_UP_LIMITED, CatchupLimit: downCatchUp},
	} {
		row := v.row(subjectEngine)
		row.Note = strings.TrimPrefix(policy.GetMisfirePolicy().String(), "MISFIRE_POLICY_") +
			fmt.Sprintf(": %d crons of every minute, down for %s", r.command.CronsDown, downFor)
		if err := r.inScratch(ctx, func(d *scratch) error { return r.catchUp(ctx, d, row, policy) }); err != nil {
			return err
		}
		r.report.Rows = append(r.report.Rows, row)
	}
	return nil
}

// catchUp creates the crons, stops the engine, moves the crons back by an hour, and starts another
// engine.
func (r *runner) catchUp(ctx context.Context, d *scratch, row *Row, policy *progressorv1.CronPolicy) error {
	s, err := openSite(ctx, d.dsn, r.command.Lanes, r.logger(), cronProcessor())
	if err != nil {
		return err
	}
	if _, err = s.engine.PutNamespace(ctx, builtinNamespace(namespaceName, historyNone)); err == nil {
		err = each(ctx, r.command.CronsDown, fillers, func(ctx context.Context, i int) error {
			_, err := s.crons.Create(ctx, &progressorv1.CreateCronRequest{Cron: &progressorv1.Cron{
				Namespace: namespaceName, CronId: cronID("cron", i),
				Spec: &progressorv1.CronSpec{Expressions: []string{"* * * * *"}}, Policy: policy,
				Target: &progressorv1.CronTarget{
					Target: &progressorv1.CronTarget_StartProcess{StartProcess: &progressorv1.StartProcessTarget{}}},
			}}, process.Actor{})
			return err
		})
	}
	if err := errors.Join(err, s.close()); err != nil {
		return err
	}
	conn, err := d.connect(ctx, engineSchema)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := putBack(ctx, conn); err != nil {
		return fmt.Errorf("put the crons back by %s: %w", downFor, err)
	}
	if err := r.settle(ctx, d.analyze); err != nil {
		return err
	}
	begin := time.Now()
	if s, err = openSite(ctx, d.dsn, r.command.Lanes, r.logger(), cronProcessor()); err != nil {
		return err
	}
	err = awaitCaughtUp(ctx, conn)
	row.figure("caught up after", time.Since(begin).Seconds(), "s")
	if err == nil {
		err = row.readCaughtUp(ctx, conn, r.command.CronsDown, time.Since(begin))
	}
	if err == nil { // crons may wait for the next minute, but no other work may be left
		err = each(ctx, r.command.CronsDown, fillers, func(ctx context.Context, i int) error {
			return s.crons.Delete(ctx,
				&progressorv1.DeleteCronRequest{Namespace: namespaceName, CronId: cronID("cron", i)}, process.Actor{})
		})
	}
	if err == nil {
		err = cronFires{last: begin}.awaitEnd(ctx, conn, 0)
	}
	if err := errors.Join(err, s.close()); err != nil {
		return err
	}
	return r.verify(ctx, d, row, nil)
}

// putBack changes the crons of a stopped engine as if the engine had stopped an hour ago: their
// creation times, their last decisions, and their next fire times.
func putBack(ctx context.Context, conn *pgx.Conn) error {
	states := map[string][]byte{}
	rows, err := conn.Query(ctx, `SELECT process_id, aux_state FROM processes WHERE namespace = $1 AND kind = 'cron'`,
		namespaceName)
	if err != nil {
		return err
	}
	var id string
	var text []byte
	if _, err := pgx.ForEachRow(rows, []any{&id, &text}, func() error {
		states[id], err = older(text)
		return err
	}); err != nil {
		return err
	}
	var b pgx.Batch
	for id, text := range states {
		b.Queue(`UPDATE processes SET aux_state = $3, `+
			`created_time = created_time - $4::interval WHERE namespace = $1 AND process_id = $2`, namespaceName, id,
			text, downFor)
	}
	b.Queue(`DELETE FROM cron_fires WHERE namespace = $1`, namespaceName) // fires of a minute that has just passed
	b.Queue(`UPDATE schedule SET scheduled_time = scheduled_time - $2::interval WHERE namespace = $1 AND `+
		`starts_with(process_id, '~cron/')`, namespaceName, downFor)
	return conn.SendBatch(ctx, &b).Close()
}

// older returns the state of a cron with all its times moved back by downFor. The first line of the
// state is JSON.
func older(text []byte) ([]byte, error) {
	head, body, _ := bytes.Cut(text, []byte{'\n'})
	var state map[string]any
	if err := json.Unmarshal(head, &state); err != nil {
		return nil, err
	}
	remembered, _ := state["cron"].(map[string]any)
	for _, field := range []struct {
		of   map[string]any
		name string
	}{{state, "created"}, {state, "next"}, {state, "timer"}, {remembered, "decided"}} {
		value, _ := field.of[field.name].(string)
		at, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return nil, fmt.Errorf("%s of the state of a cron: %w", field.name, err)
		}
		field.of[field.name] = at.Add(-downFor)
	}
	head, err := json.Marshal(state)
	return append(append(head, '\n'), body...), err
}

const (
	// countLate counts the crons that have something to do. The others wait for a future time.
	countLate = `
SELECT count(*) FROM processes p WHERE p.namespace = $1 AND p.kind = 'cron' AND NOT EXISTS (
  SELECT 1 FROM schedule s WHERE s.namespace = p.namespace AND s.process_id = p.process_id
    AND s.timer_name = '' AND s.scheduled_time > clock_timestamp())`
	// readCaughtUp counts the crons that have caught up, and their rows in the ledger. The fire
	// time is part of the key of the ledger. A cron has caught up if it has a row for every minute
	// from its creation to its last fire time.
	readCaughtUp = `
SELECT count(*) FILTER (WHERE n = minutes), coalesce(sum(n), 0)::bigint, coalesce(sum(fired), 0)::bigint,
  coalesce(sum(missed), 0)::bigint FROM (
  SELECT count(*) AS n, count(*) FILTER (WHERE f.decision = 'FIRED') AS fired,
    count(*) FILTER (WHERE f.decision = 'MISSED') AS missed,
         (extract(epoch FROM max(f.fire_time) - date_trunc('minute', min(p.created_time))) / 60)::bigint AS minutes
    FROM processes p JOIN cron_fires f ON f.namespace = p.namespace AND '~cron/' || f.cron_id = p.process_id
   WHERE p.namespace = $1 AND p.kind = 'cron' AND f.count = 1
   GROUP BY p.process_id) x`
)

func awaitCaughtUp(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, downWait)
	defer cancel()
	for {
		var late int64
		if err := conn.QueryRow(ctx, countLate, namespaceName).Scan(&late); err != nil {
			return err
		}
		if late == 0 {
			return nil
		}
		if err := wait(ctx, cronsPoll); err != nil {
			return fmt.Errorf("%d crons are still late: %w", late, err)
		}
	}
}

func (row *Row) readCaughtUp(ctx context.Context, conn *pgx.Conn, crons int, took time.Duration) error {
	var whole, rows, fired, missed int64
	if err := conn.QueryRow(ctx, readCaughtUp, namespaceName).Scan(&whole, &rows, &fired, &missed); err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	if whole != int64(crons) || rows < whole*int64(downFor/time.Minute) {
		return fmt.Errorf("%d of %d crons have all of their fire times in the ledger, which has %d", whole, crons, rows)
	}
	row.Operations, row.Seconds, row.OpsPerSecond = rows, took.Seconds(), float64(rows)/took.Seconds()
	row.figure("fire times that were FIRED", float64(fired), "")
	row.figure("fire times that were MISSED", float64(missed), "")
	return nil
}
