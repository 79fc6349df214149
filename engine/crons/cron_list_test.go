package crons_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// listedCron is a row of the view cron_list.
type listedCron struct {
	Expressions, ExcludeExpressions                                    []string
	Timezone, OverlapAction, FailureAction, ConcurrencyPolicy, Misfire string
	Target                                                             string
	TargetNamespace, TargetName, PauseNote                             *string
	MaxConcurrency, MaxFires                                           int64
	CatchupLimit                                                       *int64
	StartTime, EndTime, NextFireTime, LastFireTime                     *time.Time
	CreatedTime, UpdatedTime                                           time.Time
	Jitter, CatchupWindow, Timeout                                     *time.Duration
	Paused                                                             bool
	Running, Queued, Failures                                          int32
}

func (n *node) listed(t *testing.T, id string) listedCron {
	t.Helper()
	rows, err := n.DB.Query(t.Context(), `SELECT expressions, exclude_expressions, timezone, overlap_action,
		failure_action, concurrency_policy, misfire_policy AS misfire, target, target_namespace, target_name,
		pause_note, max_concurrency, max_fires, catchup_limit, start_time, end_time, next_fire_time,
		last_fire_time, created_time, updated_time, jitter, catchup_window, timeout, paused, running, queued, failures
		FROM progressor.cron_list WHERE namespace = 'ns' AND cron_id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[listedCron])
	if err != nil {
		t.Fatalf("cron_list of %s: %v", id, err)
	}
	return row
}

// The view cron_list has every field of a definition, and the next fire time of a cron.
func TestCronList(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("full", "0 3 * * *", "complete")
	c.Spec = &progressorv1.CronSpec{
		Expressions: []string{"0 3 * * *", "30 4 1 * *"}, Timezone: "Europe/Berlin",
		ExcludeExpressions: []string{"* * 24-26 12 *"},
		StartTime:          stamp(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)),
		EndTime:            stamp(time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)),
		Jitter:             durationpb.New(1500 * time.Millisecond), MaxFires: 1 << 40,
	}
	c.Policy = &progressorv1.CronPolicy{
		OverlapAction:     progressorv1.OverlapAction_OVERLAP_ACTION_BUFFER_ONE,
		FailureAction:     progressorv1.FailureAction_FAILURE_ACTION_HALF_OPEN,
		ConcurrencyPolicy: progressorv1.ConcurrencyPolicy_CONCURRENCY_POLICY_QUEUE,
		MisfirePolicy:     progressorv1.MisfirePolicy_MISFIRE_POLICY_CATCH_UP_LIMITED,
		MaxConcurrency:    300, CatchupLimit: 7, CatchupWindow: durationpb.New(time.Hour),
		Timeout: durationpb.New(90 * time.Second),
	}
	c.Paused, c.PauseNote = true, "tags: <html>"
	c.Target.GetStartProcess().Namespace = "ns"
	n.create(t, c)
	got := n.listed(t, "full")
	if fmt.Sprintf("%s %s %s", got.Expressions, got.ExcludeExpressions,
		got.Timezone) != "[0 3 * * * 30 4 1 * *] [* * 24-26 12 *] Europe/Berlin" {
		t.Errorf("spec: %+v", got)
	}
	if !got.StartTime.Equal(c.GetSpec().GetStartTime().AsTime()) ||
		!got.EndTime.Equal(c.GetSpec().GetEndTime().AsTime()) ||
		*got.Jitter != 1500*time.Millisecond || got.MaxFires != 1<<40 {
		t.Errorf("spec: %+v", got)
	}
	if fmt.Sprint(got.OverlapAction, got.FailureAction, got.ConcurrencyPolicy,
		got.Misfire) != "BUFFER_ONEHALF_OPENQUEUECATCH_UP_LIMITED" ||
		got.MaxConcurrency != 300 || *got.CatchupLimit != 7 || *got.CatchupWindow != time.Hour ||
		*got.Timeout != 90*time.Second {
		t.Errorf("policy: %+v", got)
	}
	if !got.Paused || *got.PauseNote != "tags: <html>" || got.NextFireTime != nil || got.LastFireTime != nil {
		t.Errorf("paused: %+v", got)
	}
	if got.Target != "START_PROCESS" || *got.TargetNamespace != "ns" || got.TargetName != nil {
		t.Errorf("target: %+v", got)
	}

	n.create(t, starts("plain", never, "wait"))
	_, err := n.Trigger(t.Context(), &progressorv1.TriggerCronRequest{Namespace: "ns", CronId: "plain"}, kim)
	if err != nil {
		t.Fatal(err)
	}
	shown := n.get(t, "plain")
	got = n.listed(t, "plain")
	if fmt.Sprint(got.OverlapAction, got.FailureAction, got.ConcurrencyPolicy, got.Misfire,
		got.MaxConcurrency) != "ALLOWRUN_NEWSKIPFIRE_NOW1" ||
		got.Timezone != "UTC" || got.Timeout != nil || got.Paused || got.PauseNote != nil {
		t.Errorf("defaults: %+v", got)
	}
	if !got.NextFireTime.Equal(shown.GetNextFireTimes()[0].AsTime()) ||
		!got.LastFireTime.Equal(shown.GetLastFireTime().AsTime()) || got.Running != 1 {
		t.Errorf("next and last: %+v, want %v", got, shown)
	}

	for id, target := range map[string]*progressorv1.CronTarget{
		"NOTIFY_PROCESS ns p1": {Target: &progressorv1.CronTarget_NotifyProcess{
			NotifyProcess: &progressorv1.NotifyProcessTarget{Namespace: "ns", ProcessId: "p1"}}},
		"ENQUEUE_JOB ns digest": {
			Target: &progressorv1.CronTarget_EnqueueJob{EnqueueJob: &progressorv1.EnqueueJobTarget{Name: "digest"}},
		},
		"HTTP - http://127.0.0.1:1/x": {Target: &progressorv1.CronTarget_Http{Http: &progressorv1.HttpTarget{Url: "http://127.0.0.1:1/x"}}},
	} {
		c := starts(id, never, "")
		c.Target = target
		n.create(t, c)
		got, namespace := n.listed(t, id), "-"
		if got.TargetNamespace != nil {
			namespace = *got.TargetNamespace
		}
		if text := fmt.Sprint(got.Target, " ", namespace, " ", *got.TargetName); text != id {
			t.Errorf("target %s, want %s", text, id)
		}
	}
}

// A truncated definition has fewer fields, but causes no error. Neither do characters that are not
// valid in text.
func TestCronListReadsAnyState(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.create(t, starts("c", never, ""))
	n.Stop()
	_, err := n.DB.Exec(t.Context(),
		`UPDATE progressor.processes
		SET aux_state = convert_to('{"pause_note": "a\u0000", "updated": "2026-01-01T00:00:00Z"}' || chr(10), 'UTF8')
		|| '\x1a030a0100' || substring(aux_state FROM position('\x0a'::bytea IN aux_state) + 1)
		WHERE process_id = '~cron/c'`)
	if err != nil {
		t.Fatal(err)
	}
	if got := n.listed(t, "c"); *got.PauseNote != "a\ufffd" || got.Expressions[0] != `\000` {
		t.Errorf("zero characters: %+v", got)
	}
	for length := n.Count(t, `SELECT octet_length(aux_state) FROM progressor.processes
		WHERE process_id = '~cron/c'`); ; length-- {
		_, err := n.DB.Exec(t.Context(),
			`UPDATE progressor.processes SET aux_state = substring(aux_state FROM 1 FOR $1)
				WHERE process_id = '~cron/c'`, length)
		if err != nil {
			t.Fatal(err)
		}
		if n.Count(t, "SELECT count(*) FROM (SELECT l::text FROM progressor.cron_list l) x") == 0 {
			break // the line of JSON is also truncated
		}
	}
}

// TestListIsBoundedInBytes checks that a page ends after 1 MiB of stored crons. The messages of
// these crons are up to eight times as large.
func TestListIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	for k := range 12 {
		c := starts(fmt.Sprintf("c%02d", k), never, strings.Repeat("x", 200<<10))
		c.Paused = true
		n.create(t, c)
	}
	var pages []int
	for token, more := "", true; more; more = token != "" {
		list, next, err := n.List(t.Context(), &progressorv1.ListCronsRequest{Namespace: "ns", PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		pages, token = append(pages, len(list)), next
	}
	if fmt.Sprint(pages) != "[6 6 0]" { // the last page is empty, because the one before it is full
		t.Errorf("pages of %v crons", pages)
	}
}
