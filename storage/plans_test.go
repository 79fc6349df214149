package storage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// recorder records the text of a statement and runs nothing.
type recorder struct {
	sql  string
	args []any
}

var errRecorded = errors.New("recorded")

func (r *recorder) Exec(_ context.Context, sql string, _ ...any) (pgconn.CommandTag, error) {
	r.sql = sql
	return pgconn.CommandTag{}, errRecorded
}

func (r *recorder) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	r.sql, r.args = sql, args
	return nil, errRecorded
}

func (r *recorder) QueryRow(_ context.Context, sql string, _ ...any) pgx.Row {
	r.sql = sql
	return recordedRow{}
}

type recordedRow struct{}

func (recordedRow) Scan(...any) error { return errRecorded }

// text returns the SQL of a generated method, which run calls.
func text(run func(db dbsqlc.DBTX) error) string {
	var r recorder
	_ = run(&r) // errRecorded
	return r.sql
}

func second[T any](_ T, err error) error { return err }

// hotStatements returns the statements of the lanes and the scans.
func hotStatements() map[string]string {
	q, ctx := dbsqlc.New(), context.Background()
	return map[string]string{
		"LockProcesses":    text(func(db dbsqlc.DBTX) error { return q.LockProcesses(ctx, db, dbsqlc.LockProcessesParams{}) }),
		"TryLockProcesses": text(func(db dbsqlc.DBTX) error { return q.TryLockProcesses(ctx, db, dbsqlc.TryLockProcessesParams{}) }),
		"LockUncontendedProcesses": text(func(db dbsqlc.DBTX) error {
			return second(q.LockUncontendedProcesses(ctx, db, dbsqlc.LockUncontendedProcessesParams{}))
		}),
		"SaveResult":          text(func(db dbsqlc.DBTX) error { return second(q.SaveResult(ctx, db, dbsqlc.SaveResultParams{})) }),
		"SaveFinished":        text(func(db dbsqlc.DBTX) error { return second(q.SaveFinished(ctx, db, dbsqlc.SaveFinishedParams{})) }),
		"SaveCompleted":       text(func(db dbsqlc.DBTX) error { return second(q.SaveCompleted(ctx, db, dbsqlc.SaveCompletedParams{})) }),
		"WriteFailedAttempts": text(func(db dbsqlc.DBTX) error { return q.WriteFailedAttempts(ctx, db, dbsqlc.WriteFailedAttemptsParams{}) }),
		"RetryTasks":          text(func(db dbsqlc.DBTX) error { return q.RetryTasks(ctx, db, dbsqlc.RetryTasksParams{}) }),
		"DropTimers":          text(func(db dbsqlc.DBTX) error { return q.DropTimers(ctx, db, dbsqlc.DropTimersParams{}) }),
		"SetTimers":           text(func(db dbsqlc.DBTX) error { return q.SetTimers(ctx, db, dbsqlc.SetTimersParams{}) }),
		"CheckTimers":         text(func(db dbsqlc.DBTX) error { return q.CheckTimers(ctx, db, dbsqlc.CheckTimersParams{}) }),
		"RestoreTimers":       text(func(db dbsqlc.DBTX) error { return q.RestoreTimers(ctx, db, dbsqlc.RestoreTimersParams{}) }),
		"CancelScheduled":     text(func(db dbsqlc.DBTX) error { return second(q.CancelScheduled(ctx, db, dbsqlc.CancelScheduledParams{})) }),
		"PrepareInit":         text(func(db dbsqlc.DBTX) error { return second(q.PrepareInit(ctx, db, dbsqlc.PrepareInitParams{})) }),
		"PrepareCall":         text(func(db dbsqlc.DBTX) error { return second(q.PrepareCall(ctx, db, dbsqlc.PrepareCallParams{})) }),
		"CaptureCall":         text(func(db dbsqlc.DBTX) error { return second(q.CaptureCall(ctx, db, dbsqlc.CaptureCallParams{})) }),
		"PrepareRepair":       text(func(db dbsqlc.DBTX) error { return second(q.PrepareRepair(ctx, db, dbsqlc.PrepareRepairParams{})) }),
		"SimpleRepair":        text(func(db dbsqlc.DBTX) error { return second(q.SimpleRepair(ctx, db, dbsqlc.SimpleRepairParams{})) }),
		"SuspendProcesses": text(func(db dbsqlc.DBTX) error {
			return second(q.SuspendProcesses(ctx, db, dbsqlc.SuspendProcessesParams{}))
		}),
		"ResumeProcesses":    text(func(db dbsqlc.DBTX) error { return second(q.ResumeProcesses(ctx, db, dbsqlc.ResumeProcessesParams{})) }),
		"CancelProcesses":    text(func(db dbsqlc.DBTX) error { return second(q.CancelProcesses(ctx, db, dbsqlc.CancelProcessesParams{})) }),
		"ListOverdueCancels": text(func(db dbsqlc.DBTX) error { return second(q.ListOverdueCancels(ctx, db, 0)) }),
		"SearchCalls":        text(func(db dbsqlc.DBTX) error { return second(q.SearchCalls(ctx, db, dbsqlc.SearchCallsParams{})) }),
		"SearchTimers":       text(func(db dbsqlc.DBTX) error { return second(q.SearchTimers(ctx, db, dbsqlc.SearchTimersParams{})) }),
		"SearchCronTimers": text(func(db dbsqlc.DBTX) error {
			return second(q.SearchCronTimers(ctx, db, dbsqlc.SearchCronTimersParams{}))
		}),
		"NamespacesWaiting": text(func(db dbsqlc.DBTX) error { return second(q.NamespacesWaiting(ctx, db)) }),
		"DueTimers":         text(func(db dbsqlc.DBTX) error { return second(q.DueTimers(ctx, db, dbsqlc.DueTimersParams{})) }),
		"NextTimers":        text(func(db dbsqlc.DBTX) error { return second(q.NextTimers(ctx, db)) }),
		"NextTimes":         text(func(db dbsqlc.DBTX) error { return second(q.NextTimes(ctx, db, nil)) }),
		"ReadAnswers":       text(func(db dbsqlc.DBTX) error { return second(q.ReadAnswers(ctx, db, dbsqlc.ReadAnswersParams{})) }),
		"ReadApplied":       text(func(db dbsqlc.DBTX) error { return second(q.ReadApplied(ctx, db, dbsqlc.ReadAppliedParams{})) }),
		"ReadRequests":      text(func(db dbsqlc.DBTX) error { return second(q.ReadRequests(ctx, db, nil)) }),
		"ReadHistories":     text(func(db dbsqlc.DBTX) error { return second(q.ReadHistories(ctx, db, dbsqlc.ReadHistoriesParams{})) }),
		"ReadShortHistories": text(func(db dbsqlc.DBTX) error {
			return second(q.ReadShortHistories(ctx, db, dbsqlc.ReadShortHistoriesParams{}))
		}),
		"InsertAudits":        text(func(db dbsqlc.DBTX) error { return q.InsertAudits(ctx, db, dbsqlc.InsertAuditsParams{}) }),
		"ReadWatched":         text(func(db dbsqlc.DBTX) error { return second(q.ReadWatched(ctx, db, dbsqlc.ReadWatchedParams{})) }),
		"ReadProcesses":       text(func(db dbsqlc.DBTX) error { return second(q.ReadProcesses(ctx, db, dbsqlc.ReadProcessesParams{})) }),
		"RemoveProcesses":     text(func(db dbsqlc.DBTX) error { return second(q.RemoveProcesses(ctx, db, dbsqlc.RemoveProcessesParams{})) }),
		"SettleQueues":        text(func(db dbsqlc.DBTX) error { return second(q.SettleQueues(ctx, db, dbsqlc.SettleQueuesParams{})) }),
		"PurgeHistory":        text(func(db dbsqlc.DBTX) error { return second(q.PurgeHistory(ctx, db, dbsqlc.PurgeHistoryParams{})) }),
		"DeleteRemoved":       text(func(db dbsqlc.DBTX) error { return q.DeleteRemoved(ctx, db, dbsqlc.DeleteRemovedParams{}) }),
		"WriteFires":          text(func(db dbsqlc.DBTX) error { return q.WriteFires(ctx, db, dbsqlc.WriteFiresParams{}) }),
		"InsertTaskAudits":    text(func(db dbsqlc.DBTX) error { return q.InsertTaskAudits(ctx, db, dbsqlc.InsertTaskAuditsParams{}) }),
		"SendMessages":        text(func(db dbsqlc.DBTX) error { return second(q.SendMessages(ctx, db, dbsqlc.SendMessagesParams{})) }),
		"NotifyParents":       text(func(db dbsqlc.DBTX) error { return second(q.NotifyParents(ctx, db, dbsqlc.NotifyParentsParams{})) }),
		"StartSteps":          text(func(db dbsqlc.DBTX) error { return second(q.StartSteps(ctx, db, dbsqlc.StartStepsParams{})) }),
		"EndSteps":            text(func(db dbsqlc.DBTX) error { return second(q.EndSteps(ctx, db, dbsqlc.EndStepsParams{})) }),
		"ReleaseMessages":     text(func(db dbsqlc.DBTX) error { return second(q.ReleaseMessages(ctx, db, dbsqlc.ReleaseMessagesParams{})) }),
		"DeliverStarts":       text(func(db dbsqlc.DBTX) error { return second(q.DeliverStarts(ctx, db, dbsqlc.DeliverStartsParams{})) }),
		"DeliverCancels":      text(func(db dbsqlc.DBTX) error { return second(q.DeliverCancels(ctx, db, dbsqlc.DeliverCancelsParams{})) }),
		"DeliverNotifies":     text(func(db dbsqlc.DBTX) error { return second(q.DeliverNotifies(ctx, db, dbsqlc.DeliverNotifiesParams{})) }),
		"SearchMessages":      text(func(db dbsqlc.DBTX) error { return second(q.SearchMessages(ctx, db, dbsqlc.SearchMessagesParams{})) }),
		"EnsureJobKeys":       text(func(db dbsqlc.DBTX) error { return q.EnsureJobKeys(ctx, db, dbsqlc.EnsureJobKeysParams{}) }),
		"LockJobKeys":         text(func(db dbsqlc.DBTX) error { return q.LockJobKeys(ctx, db, dbsqlc.LockJobKeysParams{}) }),
		"EnqueueJobs":         text(func(db dbsqlc.DBTX) error { return second(q.EnqueueJobs(ctx, db, dbsqlc.EnqueueJobsParams{})) }),
		"WatchJobEvents":      text(func(db dbsqlc.DBTX) error { return second(q.WatchJobEvents(ctx, db, dbsqlc.WatchJobEventsParams{})) }),
		"OldestAvailable":     text(func(db dbsqlc.DBTX) error { return second(q.OldestAvailable(ctx, db, dbsqlc.OldestAvailableParams{})) }),
		"EndJobs":             text(func(db dbsqlc.DBTX) error { return q.EndJobs(ctx, db, dbsqlc.EndJobsParams{}) }),
		"WriteJobEvents":      text(func(db dbsqlc.DBTX) error { return q.WriteJobEvents(ctx, db, dbsqlc.WriteJobEventsParams{}) }),
		"WriteJobs":           text(func(db dbsqlc.DBTX) error { return q.WriteJobs(ctx, db, dbsqlc.WriteJobsParams{}) }),
		"EndIfCancelled":      text(func(db dbsqlc.DBTX) error { return q.EndIfCancelled(ctx, db, dbsqlc.EndIfCancelledParams{}) }),
		"Poll":                text(func(db dbsqlc.DBTX) error { return second(q.Poll(ctx, db, dbsqlc.PollParams{})) }),
		"PollGroups":          text(func(db dbsqlc.DBTX) error { return second(q.PollGroups(ctx, db, dbsqlc.PollGroupsParams{})) }),
		"ReadNamespaceStates": text(func(db dbsqlc.DBTX) error { return second(q.ReadNamespaceStates(ctx, db)) }),
		"CountPollable":       text(func(db dbsqlc.DBTX) error { return second(q.CountPollable(ctx, db, dbsqlc.CountPollableParams{})) }),
		"ReleaseTimers":       text(func(db dbsqlc.DBTX) error { return second(q.ReleaseTimers(ctx, db, dbsqlc.ReleaseTimersParams{})) }),
		"BeatLeases":          text(func(db dbsqlc.DBTX) error { return second(q.BeatLeases(ctx, db, dbsqlc.BeatLeasesParams{})) }),
		"EndLeases":           text(func(db dbsqlc.DBTX) error { return q.EndLeases(ctx, db, dbsqlc.EndLeasesParams{}) }),
		"ReadLease":           text(func(db dbsqlc.DBTX) error { return second(q.ReadLease(ctx, db, dbsqlc.ReadLeaseParams{})) }),
		"LeaseAnswered":       text(func(db dbsqlc.DBTX) error { return second(q.LeaseAnswered(ctx, db, dbsqlc.LeaseAnsweredParams{})) }),
		"FreeKeys":            text(func(db dbsqlc.DBTX) error { return q.FreeKeys(ctx, db, dbsqlc.FreeKeysParams{}) }),
		"RequeueForKeys":      text(func(db dbsqlc.DBTX) error { return q.RequeueForKeys(ctx, db, dbsqlc.RequeueForKeysParams{}) }),
		"FreeEnded":           text(func(db dbsqlc.DBTX) error { return q.FreeEnded(ctx, db, dbsqlc.FreeEndedParams{}) }),
		"DueInLine":           text(func(db dbsqlc.DBTX) error { return second(q.DueInLine(ctx, db, dbsqlc.DueInLineParams{})) }),
		"DueBuckets":          text(func(db dbsqlc.DBTX) error { return second(q.DueBuckets(ctx, db, dbsqlc.DueBucketsParams{})) }),
		"NextInLine":          text(func(db dbsqlc.DBTX) error { return second(q.NextInLine(ctx, db, "")) }),
		"ReadLines":           text(func(db dbsqlc.DBTX) error { return second(q.ReadLines(ctx, db, dbsqlc.ReadLinesParams{})) }),
		"TakeLines":           text(func(db dbsqlc.DBTX) error { return second(q.TakeLines(ctx, db, dbsqlc.TakeLinesParams{})) }),
		"PlaceJobs":           text(func(db dbsqlc.DBTX) error { return q.PlaceJobs(ctx, db, dbsqlc.PlaceJobsParams{}) }),
		"HoldKeys":            text(func(db dbsqlc.DBTX) error { return q.HoldKeys(ctx, db, dbsqlc.HoldKeysParams{}) }),
		"ReserveKeys":         text(func(db dbsqlc.DBTX) error { return q.ReserveKeys(ctx, db, dbsqlc.ReserveKeysParams{}) }),
		"SweepHolds":          text(func(db dbsqlc.DBTX) error { return second(q.SweepHolds(ctx, db, dbsqlc.SweepHoldsParams{})) }),
		"ListLines":           text(func(db dbsqlc.DBTX) error { return second(q.ListLines(ctx, db, dbsqlc.ListLinesParams{})) }),
		"SpanOfJobs":          text(func(db dbsqlc.DBTX) error { return second(q.SpanOfJobs(ctx, db, dbsqlc.SpanOfJobsParams{})) }),
		"StaleJobs":           text(func(db dbsqlc.DBTX) error { return second(q.StaleJobs(ctx, db, dbsqlc.StaleJobsParams{})) }),
		"DropHolds":           text(func(db dbsqlc.DBTX) error { return q.DropHolds(ctx, db, dbsqlc.DropHoldsParams{}) }),
		"InsertRuns":          text(func(db dbsqlc.DBTX) error { return q.InsertRuns(ctx, db, dbsqlc.InsertRunsParams{}) }),
		"UpdateRuns":          text(func(db dbsqlc.DBTX) error { return q.UpdateRuns(ctx, db, dbsqlc.UpdateRunsParams{}) }),
		"WriteSteps":          text(func(db dbsqlc.DBTX) error { return q.WriteSteps(ctx, db, dbsqlc.WriteStepsParams{}) }),
		"ReportSteps":         text(func(db dbsqlc.DBTX) error { return q.ReportSteps(ctx, db, dbsqlc.ReportStepsParams{}) }),
		"LeaveScopes":         text(func(db dbsqlc.DBTX) error { return second(q.LeaveScopes(ctx, db, dbsqlc.LeaveScopesParams{})) }),
		"TakeGroups":          text(func(db dbsqlc.DBTX) error { return second(q.TakeGroups(ctx, db, 0)) }),
		"PutGroups":           text(func(db dbsqlc.DBTX) error { return q.PutGroups(ctx, db, dbsqlc.PutGroupsParams{}) }),
		"ReadPlaces":          text(func(db dbsqlc.DBTX) error { return second(q.ReadPlaces(ctx, db, dbsqlc.ReadPlacesParams{})) }),
		"DropPlaces":          text(func(db dbsqlc.DBTX) error { return q.DropPlaces(ctx, db, dbsqlc.DropPlacesParams{}) }),
		"SetTakers":           text(func(db dbsqlc.DBTX) error { return q.SetTakers(ctx, db, dbsqlc.SetTakersParams{}) }),
		"OpenPlaces":          text(func(db dbsqlc.DBTX) error { return second(q.OpenPlaces(ctx, db, dbsqlc.OpenPlacesParams{})) }),
		"CancelMembers":       text(func(db dbsqlc.DBTX) error { return q.CancelMembers(ctx, db, dbsqlc.CancelMembersParams{}) }),
		"RestGroups":          text(func(db dbsqlc.DBTX) error { return q.RestGroups(ctx, db, dbsqlc.RestGroupsParams{}) }),
		"EndGroups":           text(func(db dbsqlc.DBTX) error { return second(q.EndGroups(ctx, db, dbsqlc.EndGroupsParams{})) }),
		"FindLateJobs":        text(func(db dbsqlc.DBTX) error { return second(q.FindLateJobs(ctx, db, 0)) }),
		"EndLateJobs":         text(func(db dbsqlc.DBTX) error { return second(q.EndLateJobs(ctx, db, dbsqlc.EndLateJobsParams{})) }),
		"ReassignMembers":     text(func(db dbsqlc.DBTX) error { return q.ReassignMembers(ctx, db, dbsqlc.ReassignMembersParams{}) }),
		"FindMemberWorkers": text(func(db dbsqlc.DBTX) error {
			return second(q.FindMemberWorkers(ctx, db, dbsqlc.FindMemberWorkersParams{}))
		}),
		"ListRunningOf": text(func(db dbsqlc.DBTX) error { return second(q.ListRunningOf(ctx, db, dbsqlc.ListRunningOfParams{})) }),
	}
}

// Indexes whose conditions need not name a process: those of scans, and the keys of requests.
var scanIndexes = map[string][]string{
	"messages_target": {"SearchMessages"}, "schedule_due": {"DueTimers"}, "cron_fires_pkey": {"WriteFires"}, "namespaces_pkey": {"DeliverStarts", "ReadNamespaceStates"},
	"schedule_cron": {"SearchCronTimers"}, "schedule_own": {"SearchCalls", "NamespacesWaiting"}, "schedule_job_rounds": {"Poll", "PollGroups", "CountPollable", "OldestAvailable"},
	"schedule_rounds": {"SearchCalls", "NamespacesWaiting", "Poll", "PollGroups", "CountPollable"}, "schedule_time": {"SearchTimers", "NextTimers", "NextTimes", "ReleaseTimers"},
	"job_keys_pkey":             {"LockJobKeys", "EnqueueJobs", "DeliverStarts"},
	"processes_cancel_deadline": {"ListOverdueCancels", "ReadNamespaceStates"},
	"constraint_sets_pkey":      {"EnqueueJobs", "StartSteps", "DeliverStarts", "Poll", "PollGroups", "SearchCalls", "SearchTimers", "ReadNamespaceStates"},
	"job_events_pkey":           {"WatchJobEvents"},
	"schedule_line_rounds":      {"TakeLines", "ListLines", "OldestAvailable"}, "schedule_line_times": {"DueInLine", "NextInLine"},
	"constraint_holds_line": {"ReadLines"}, "constraint_buckets_pkey": {"ReadLines"}, "constraint_reservations_pkey": {"ReadLines"}, "constraint_buckets_next": {"DueBuckets", "NextInLine"},
	"flow_steps_pkey": {"PurgeHistory", "DeleteRemoved", "WriteSteps", "ReportSteps"}, "flow_runs_pkey": {"PurgeHistory", "UpdateRuns"},
	"flow_scopes_pkey": {"LeaveScopes", "PurgeHistory"}, "flow_scopes_holder": {"LeaveScopes"},
	"schedule_members": {"ReadNamespaceStates"}, "schedule_takers": {"PollGroups", "FindMemberWorkers", "TakeGroups", "ReadNamespaceStates"}, "job_places_job": {"CancelProcesses", "DeliverCancels", "RemoveProcesses", "PurgeHistory", "ReadPlaces", "EndGroups", "RestGroups"},
	"schedule_start_deadline": {"ReadNamespaceStates", "FindLateJobs"},
	"job_pauses_pkey":         {"ReadNamespaceStates", "Poll", "PollGroups", "CountPollable", "SearchCalls", "SearchTimers", "HasSkippedCalls", "FindMemberWorkers"},
	"schedule_pkey":           {"SpanOfJobs"}, "constraint_holds_pkey": {"SweepHolds"},
	"requests_pkey": {"EnqueueJobs", "PrepareInit", "PrepareCall", "CaptureCall", "PrepareRepair", "SimpleRepair", "RemoveProcesses", "ReadRequests"},
}

// planNode is a node of EXPLAIN (FORMAT JSON).
type planNode struct {
	Type      string `json:"Node Type"`
	Relation  string `json:"Relation Name"`
	Index     string `json:"Index Name"`
	Condition string `json:"Index Cond"`
	Plans     []planNode
}

// faults returns the faults of a plan: reads of a whole table, or of more of it than the
// processes that it concerns.
func (n planNode) faults(statement string) (list []string) {
	switch n.Type {
	case "Seq Scan":
		list = append(list, "reads "+n.Relation+" in full")
	case "Hash Join", "Merge Join":
		list = append(list, "has a "+n.Type)
	case "Index Scan", "Index Only Scan", "Bitmap Index Scan":
		whole := strings.Contains(n.Condition, "(namespace =") && strings.Contains(n.Condition, "(process_id =")
		if !whole && !slices.Contains(scanIndexes[n.Index], statement) {
			list = append(list, fmt.Sprintf("reads %s by %s where %q", n.Relation, n.Index, n.Condition))
		}
	case "Nested Loop":
		// It reads the result of another part of the statement for each of its own rows: quadratic
		// cost.
		if inner := n.Plans[1]; inner.Type == "CTE Scan" || inner.Type == "Function Scan" {
			list = append(list, "joins every row with every row of a "+inner.Type)
		}
	}
	for _, child := range n.Plans {
		list = append(list, child.faults(statement)...)
	}
	return list
}

var parameter = regexp.MustCompile(`\$(\d+)`)

// explain returns the plan of a statement on the hot connections, for any arguments.
func explain(t *testing.T, conn *pgx.Conn, sql string) planNode {
	t.Helper()
	arguments := 0
	for _, m := range parameter.FindAllStringSubmatch(sql, -1) {
		arguments = max(arguments, atoi(t, m[1]))
	}
	if _, err := conn.Exec(t.Context(), "PREPARE looked_at AS "+sql); err != nil {
		t.Fatalf("%v in\n%s", err, sql)
	}
	var raw string
	run := "EXPLAIN (FORMAT JSON) EXECUTE looked_at"
	if arguments > 0 {
		run += " (NULL" + strings.Repeat(", NULL", arguments-1) + ")"
	}
	if err := conn.QueryRow(t.Context(), run).Scan(&raw); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "DEALLOCATE looked_at"); err != nil {
		t.Fatal(err)
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(raw), &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan
}

func atoi(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	return must(t, n, err)
}

// TestHotPlans checks the plans with empty tables, which is when an engine prepares them, and with
// 100,000 rows in schedule, before and after ANALYZE.
func TestHotPlans(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config, err := storage.HotConfig(b.dsn)
	conn, err2 := pgx.ConnectConfig(t.Context(), must(t, config, err))
	must(t, conn, err2)
	defer conn.Close(context.Background())
	statements := hotStatements()
	look := func(when string, names ...string) {
		if len(names) == 0 {
			names = slices.Sorted(maps.Keys(statements))
		}
		for _, name := range names {
			plan := explain(t, conn, statements[name])
			if faults := plan.faults(name); len(faults) > 0 {
				t.Errorf("%s, %s: %s", name, when, strings.Join(slices.Compact(faults), "; "))
			}
		}
	}
	look("empty")
	b.exec("VACUUM ANALYZE")
	look("empty, and known to be")
	b.exec(`INSERT INTO processes (namespace, process_id, status, previous_status) SELECT 'shop', 'p' || n, 'RUNNING', 'INIT' FROM generate_series(1, 50000) n`)
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name)
		SELECT 'shop', 'p' || n % 50000 + 1, nextval('task_ids'), 'TIMEOUT', 'time', now() + n * interval '1 second', n / 50000 FROM generate_series(0, 99999) n`)
	b.exec(`INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, fencing_token, scheduled_time, running_time, finished_time)
		SELECT 'shop', 'p' || n % 50000 + 1, nextval('task_ids'), 'CALL', 'FINISHED', 1, nextval('fencing_tokens'), now(), now(), now() FROM generate_series(0, 99999) n`)
	b.exec(`INSERT INTO running (namespace, process_id, task_id, task_type, attempt, fencing_token, node_id, deadline, scheduled_time, running_time)
		SELECT 'shop', 'p' || n, nextval('task_ids'), 'CALL', 1, nextval('fencing_tokens'), 1, now(), now(), now() FROM generate_series(1, 2000) n`)
	b.exec(`INSERT INTO messages (namespace, process_id, kind, held) SELECT 'shop', 'p' || n % 50000 + 1, 'notify', n % 2 = 0 FROM generate_series(0, 99999) n`)
	b.exec(`INSERT INTO parents (namespace, process_id, parent_namespace, parent_process_id, args) SELECT 'shop', 'p' || n, 'shop', 'p1', '' FROM generate_series(1, 50000) n`)
	look("full")
	for _, table := range []string{"processes", "schedule", "tasks", "running", "events", "requests", "answers", "messages", "parents"} {
		b.exec("ANALYZE " + table)
	}
	look("analyzed")
	// The typical state after autovacuum in a busy database: few rows run or wait, and their tables
	// are full of dead rows.
	b.exec("DELETE FROM running")
	b.exec("DELETE FROM schedule WHERE process_id <> 'p1'")
	b.exec("DELETE FROM messages")
	b.exec("DELETE FROM parents")
	for _, run := range []string{"ANALYZE", "VACUUM (TRUNCATE false, ANALYZE)"} {
		b.exec(run + " running")
		b.exec(run + " schedule")
		b.exec(run + " messages")
		b.exec(run + " parents")
		b.exec(run + " processes")
		look("drained, after " + run)
	}
	for _, table := range []string{"tasks", "processes"} {
		b.exec("DELETE FROM " + table + " WHERE process_id <> ALL ('{p1,p2,p3}')")
	}
	b.exec("VACUUM ANALYZE processes")
	look("few processes")
	b.recount()
}

// A plan that reads too much is detected.
func TestHotPlansAreJudged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn, err := pgx.Connect(t.Context(), b.dsn+" options='-c search_path=progressor -c plan_cache_mode=force_generic_plan'")
	must(t, conn, err)
	defer conn.Close(context.Background())
	for sql, want := range map[string]string{
		"SELECT * FROM schedule": "reads schedule in full",
		"SELECT * FROM schedule WHERE waits_for = 'place' AND namespace = $1::text":       "schedule_rounds",
		"SELECT * FROM tasks t JOIN schedule s USING (namespace) WHERE t.attempt = 2":     "reads schedule by schedule_pkey",
		"SELECT * FROM tasks t JOIN processes p USING (namespace, process_id) ORDER BY 1": "Join",
	} {
		if found := strings.Join(explain(t, conn, sql).faults("Other"), "; "); !strings.Contains(found, want) {
			t.Errorf("%s: found %q, want %q", sql, found, want)
		}
	}
}
