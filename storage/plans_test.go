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

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// recorder records the text of a statement and runs nothing.
type recorder struct {
	sql  string
	args []any
}

var errRecorded = errors.New("recorded")

func (r *recorder) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	r.sql, r.args = sql, args
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

// execSQL returns the SQL of a generated method without results.
func execSQL[P any](run func(context.Context, dbsqlc.DBTX, P) error) string {
	var none P
	sql, _ := recorded(func(db dbsqlc.DBTX) error { return run(context.Background(), db, none) })
	return sql
}

// querySQL returns the SQL of a generated method with results.
func querySQL[P, T any](run func(context.Context, dbsqlc.DBTX, P) (T, error)) string {
	return execSQL(func(ctx context.Context, db dbsqlc.DBTX, arg P) error { return second(run(ctx, db, arg)) })
}

// queryAllSQL returns the SQL of a generated method without parameters.
func queryAllSQL[T any](run func(context.Context, dbsqlc.DBTX) (T, error)) string {
	return execSQL(func(ctx context.Context, db dbsqlc.DBTX, _ struct{}) error { return second(run(ctx, db)) })
}

func second[T any](_ T, err error) error { return err }

// hotStatements returns the statements of the lanes and the scans.
func hotStatements() map[string]string {
	q := dbsqlc.New()
	return map[string]string{
		"LockProcesses":            execSQL(q.LockProcesses),
		"TryLockProcesses":         execSQL(q.TryLockProcesses),
		"LockUncontendedProcesses": querySQL(q.LockUncontendedProcesses),
		"Checkpoint":               querySQL(q.Checkpoint),
		"SaveResult":               querySQL(q.SaveResult),
		"SaveFinished":             querySQL(q.SaveFinished),
		"SaveContinued":            querySQL(q.SaveContinued),
		"SaveCompleted":            querySQL(q.SaveCompleted),
		"SaveEnded":                querySQL(q.SaveEnded),
		"WriteFailedAttempts":      execSQL(q.WriteFailedAttempts),
		"RetryTasks":               execSQL(q.RetryTasks),
		"DropTimers":               execSQL(q.DropTimers),
		"SetTimers":                execSQL(q.SetTimers),
		"CheckTimers":              execSQL(q.CheckTimers),
		"RestoreTimers":            execSQL(q.RestoreTimers),
		"CancelScheduled":          querySQL(q.CancelScheduled),
		"PrepareInit":              querySQL(q.PrepareInit),
		"PrepareCall":              querySQL(q.PrepareCall),
		"CaptureCall":              querySQL(q.CaptureCall),
		"PrepareRepair":            querySQL(q.PrepareRepair),
		"SimpleRepair":             querySQL(q.SimpleRepair),
		"SuspendProcesses":         querySQL(q.SuspendProcesses),
		"ResumeProcesses":          querySQL(q.ResumeProcesses),
		"CancelProcesses":          querySQL(q.CancelProcesses),
		"ListOverdueCancels":       querySQL(q.ListOverdueCancels),
		"SearchCalls":              querySQL(q.SearchCalls),
		"SearchTimers":             querySQL(q.SearchTimers),
		"SearchCronTimers":         querySQL(q.SearchCronTimers),
		"NamespacesWaiting":        queryAllSQL(q.NamespacesWaiting),
		"DueTimers":                querySQL(q.DueTimers),
		"NextTimers":               queryAllSQL(q.NextTimers),
		"NextTimes":                querySQL(q.NextTimes),
		"ReadAnswers":              querySQL(q.ReadAnswers),
		"ReadApplied":              querySQL(q.ReadApplied),
		"ReadRequests":             querySQL(q.ReadRequests),
		"ReadHistories":            querySQL(q.ReadHistories),
		"ReadShortHistories":       querySQL(q.ReadShortHistories),
		"InsertAudits":             execSQL(q.InsertAudits),
		"ReadWatched":              querySQL(q.ReadWatched),
		"ReadProcesses":            querySQL(q.ReadProcesses),
		"RemoveProcesses":          querySQL(q.RemoveProcesses),
		"PurgeHistory":             querySQL(q.PurgeHistory),
		"DeleteRemoved":            execSQL(q.DeleteRemoved),
		"WriteFires":               execSQL(q.WriteFires),
		"InsertTaskAudits":         execSQL(q.InsertTaskAudits),
		"SendMessages":             querySQL(q.SendMessages),
		"NotifyParents":            querySQL(q.NotifyParents),
		"StartSteps":               querySQL(q.StartSteps),
		"AdvanceRuns":              querySQL(q.AdvanceRuns),
		"EndSteps":                 querySQL(q.EndSteps),
		"ReleaseMessages":          querySQL(q.ReleaseMessages),
		"DeliverStarts":            querySQL(q.DeliverStarts),
		"DeliverCancels":           querySQL(q.DeliverCancels),
		"DeliverNotifies":          querySQL(q.DeliverNotifies),
		"SearchMessages":           querySQL(q.SearchMessages),
		"EnsureJobKeys":            execSQL(q.EnsureJobKeys),
		"LockJobKeys":              execSQL(q.LockJobKeys),
		"EnqueueJobs":              querySQL(q.EnqueueJobs),
		"WatchJobEvents":           querySQL(q.WatchJobEvents),
		"OldestAvailable":          querySQL(q.OldestAvailable),
		"EndJobs":                  execSQL(q.EndJobs),
		"WriteJobEvents":           execSQL(q.WriteJobEvents),
		"WriteJobs":                execSQL(q.WriteJobs),
		"EndIfCancelled":           execSQL(q.EndIfCancelled),
		"Poll":                     querySQL(q.Poll),
		"PollGroups":               querySQL(q.PollGroups),
		"ReadNamespaceStates":      queryAllSQL(q.ReadNamespaceStates),
		"CountPollable":            querySQL(q.CountPollable),
		"ReleaseTimers":            querySQL(q.ReleaseTimers),
		"BeatLeases":               querySQL(q.BeatLeases),
		"EndLeases":                execSQL(q.EndLeases),
		"ReadLease":                querySQL(q.ReadLease),
		"LeaseAnswered":            querySQL(q.LeaseAnswered),
		"FreeKeys":                 execSQL(q.FreeKeys),
		"RequeueForKeys":           execSQL(q.RequeueForKeys),
		"FreeEnded":                execSQL(q.FreeEnded),
		"DueInLine":                querySQL(q.DueInLine),
		"DueBuckets":               querySQL(q.DueBuckets),
		"NextInLine":               querySQL(q.NextInLine),
		"ReadLines":                querySQL(q.ReadLines),
		"TakeLines":                querySQL(q.TakeLines),
		"MoveJobs":                 execSQL(q.MoveJobs),
		"HoldKeys":                 execSQL(q.HoldKeys),
		"ReserveKeys":              execSQL(q.ReserveKeys),
		"SweepHolds":               querySQL(q.SweepHolds),
		"ListLines":                querySQL(q.ListLines),
		"SpanOfJobs":               querySQL(q.SpanOfJobs),
		"StaleJobs":                querySQL(q.StaleJobs),
		"DropHolds":                execSQL(q.DropHolds),
		"InsertRuns":               execSQL(q.InsertRuns),
		"UpdateRuns":               execSQL(q.UpdateRuns),
		"WriteSteps":               execSQL(q.WriteSteps),
		"ReportSteps":              execSQL(q.ReportSteps),
		"LeaveScopes":              querySQL(q.LeaveScopes),
		"TakeGroups":               querySQL(q.TakeGroups),
		"PutGroups":                execSQL(q.PutGroups),
		"ReadPlaces":               querySQL(q.ReadPlaces),
		"DropPlaces":               execSQL(q.DropPlaces),
		"SetTakers":                execSQL(q.SetTakers),
		"OpenPlaces":               querySQL(q.OpenPlaces),
		"CancelMembers":            execSQL(q.CancelMembers),
		"RestGroups":               execSQL(q.RestGroups),
		"EndGroups":                querySQL(q.EndGroups),
		"FindLateJobs":             querySQL(q.FindLateJobs),
		"EndLateJobs":              querySQL(q.EndLateJobs),
		"ReassignMembers":          execSQL(q.ReassignMembers),
		"FindMemberWorkers":        querySQL(q.FindMemberWorkers),
		"ListRunningOf":            querySQL(q.ListRunningOf),
	}
}

// scanIndexes has the indexes whose conditions need not name a process: those of scans, and the
// keys of requests.
var scanIndexes = map[string][]string{
	"messages_target":           {"SearchMessages"},
	"schedule_due":              {"DueTimers"},
	"cron_fires_pkey":           {"WriteFires"},
	"namespaces_pkey":           {"DeliverStarts", "ReadNamespaceStates"},
	"schedule_cron":             {"SearchCronTimers"},
	"schedule_own":              {"SearchCalls", "NamespacesWaiting"},
	"schedule_job_rounds":       {"Poll", "PollGroups", "CountPollable", "OldestAvailable"},
	"schedule_rounds":           {"SearchCalls", "NamespacesWaiting", "Poll", "PollGroups", "CountPollable"},
	"schedule_time":             {"SearchTimers", "NextTimers", "NextTimes", "ReleaseTimers"},
	"job_keys_pkey":             {"LockJobKeys", "EnqueueJobs", "DeliverStarts"},
	"processes_cancel_deadline": {"ListOverdueCancels", "ReadNamespaceStates"},
	"constraint_sets_pkey": {
		"EnqueueJobs", "StartSteps", "DeliverStarts", "Poll", "PollGroups", "SearchCalls",
		"SearchTimers", "ReadNamespaceStates",
	},
	"job_events_of_lane":           {"WatchJobEvents"},
	"job_event_lanes_pkey":         {"WatchJobEvents"},
	"job_event_drops_pkey":         {"WatchJobEvents"},
	"database_generation_pkey":     {"WatchJobEvents"},
	"schedule_line_rounds":         {"TakeLines", "ListLines", "OldestAvailable"},
	"schedule_line_times":          {"DueInLine", "NextInLine"},
	"constraint_holds_line":        {"ReadLines"},
	"constraint_buckets_pkey":      {"ReadLines"},
	"constraint_reservations_pkey": {"ReadLines"},
	"constraint_buckets_next":      {"DueBuckets", "NextInLine"},
	"flow_steps_pkey":              {"PurgeHistory", "DeleteRemoved", "WriteSteps", "ReportSteps"},
	"flow_runs_pkey":               {"PurgeHistory", "UpdateRuns"},
	"flow_scopes_pkey":             {"LeaveScopes", "PurgeHistory"},
	"flow_scopes_holder":           {"LeaveScopes"},
	"schedule_members":             {"ReadNamespaceStates"},
	"schedule_takers":              {"PollGroups", "FindMemberWorkers", "TakeGroups", "ReadNamespaceStates"},
	"job_places_job": {
		"CancelProcesses", "DeliverCancels", "RemoveProcesses", "PurgeHistory", "ReadPlaces",
		"EndGroups", "RestGroups", "GetJobs",
	},
	"schedule_start_deadline": {"ReadNamespaceStates", "FindLateJobs"},
	"job_pauses_pkey": {
		"ReadNamespaceStates", "Poll", "PollGroups", "CountPollable", "SearchCalls", "SearchTimers",
		"HasWaitingCalls", "FindMemberWorkers",
	},
	"schedule_pkey":         {"SpanOfJobs"},
	"constraint_holds_pkey": {"SweepHolds"},
	"requests_pkey": {
		"EnqueueJobs", "PrepareInit", "PrepareCall", "CaptureCall", "PrepareRepair", "SimpleRepair",
		"RemoveProcesses", "ReadRequests",
	},
}

// planNode is a node of EXPLAIN (FORMAT JSON).
type planNode struct {
	Type      string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	Condition string  `json:"Index Cond"`
	Cost      float64 `json:"Total Cost"`
	Plans     []planNode
}

// faults returns the faults of a plan: reads of a complete table, or of rows of other processes.
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
		// For each of its rows, the plan reads the result of another part of the statement. The
		// cost is quadratic.
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

// connect opens a connection with the settings of storage.HotConfig or storage.GeneralConfig.
func (b *bench) connect(settings func(dsn string) (*pgx.ConnConfig, error)) *pgx.Conn {
	b.t.Helper()
	config, err := settings(b.dsn)
	must(b.t, config, err)
	conn, err := pgx.ConnectConfig(b.t.Context(), config)
	must(b.t, conn, err)
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// buffersOf runs a statement and returns how many pages it reads.
func buffersOf(t *testing.T, conn *pgx.Conn, sql string, args ...any) int {
	t.Helper()
	var raw []byte
	must(t, 0, conn.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sql, args...).Scan(&raw))
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	must(t, 0, json.Unmarshal(raw, &plans))
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// explain returns the plan of a prepared statement. On hot connections, this is the generic plan.
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

// TestHotPlans checks the plans with empty tables (the state in which an engine prepares the
// statements), with 100,000 rows in schedule before and after ANALYZE, and after most rows are
// deleted.
func TestHotPlans(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := b.connect(storage.HotConfig)
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
	look("empty, after ANALYZE")
	b.exec(`INSERT INTO processes (namespace, process_id, status, previous_status)
		SELECT 'shop', 'p' || n, 'RUNNING', 'INIT' FROM generate_series(1, 50000) n`)
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name)
		SELECT 'shop', 'p' || n % 50000 + 1, nextval('task_ids'), 'TIMEOUT', 'time',
		       now() + n * interval '1 second', n / 50000
		  FROM generate_series(0, 99999) n`)
	b.exec(`INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt,
		                   fencing_token, scheduled_time, running_time, finished_time)
		SELECT 'shop', 'p' || n % 50000 + 1, nextval('task_ids'), 'CALL', 'FINISHED', 1,
		       nextval('fencing_tokens'), now(), now(), now()
		  FROM generate_series(0, 99999) n`)
	b.exec(`INSERT INTO running (namespace, process_id, task_id, task_type, attempt,
		                     fencing_token, node_id, deadline, scheduled_time, running_time)
		SELECT 'shop', 'p' || n, nextval('task_ids'), 'CALL', 1, nextval('fencing_tokens'), 1,
		       now(), now(), now()
		  FROM generate_series(1, 2000) n`)
	b.exec(`INSERT INTO messages (namespace, process_id, kind, held)
		SELECT 'shop', 'p' || n % 50000 + 1, 'notify', n % 2 = 0 FROM generate_series(0, 99999) n`)
	b.exec(`INSERT INTO parents (namespace, process_id, parent_namespace, parent_process_id, args)
		SELECT 'shop', 'p' || n, 'shop', 'p1', '' FROM generate_series(1, 50000) n`)
	look("full")
	for _, table := range []string{
		"processes", "schedule", "tasks", "running", "events", "requests", "answers", "messages", "parents",
	} {
		b.exec("ANALYZE " + table)
	}
	look("analyzed")
	// This is the typical state after autovacuum in a busy database: few tasks run or wait, and
	// their tables are full of dead rows.
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
func TestHotPlanFaultsAreFound(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	options := " options='-c search_path=progressor -c plan_cache_mode=force_generic_plan'"
	conn, err := pgx.Connect(t.Context(), b.dsn+options)
	must(t, conn, err)
	defer conn.Close(context.Background())
	for sql, want := range map[string]string{
		"SELECT * FROM schedule": "reads schedule in full",
		"SELECT * FROM schedule WHERE waits_for = 'place' AND namespace = $1::text":       "schedule_rounds",
		"SELECT * FROM tasks t JOIN schedule s USING (namespace) WHERE t.attempt = 2":     "by schedule_pkey",
		"SELECT * FROM tasks t JOIN processes p USING (namespace, process_id) ORDER BY 1": "Join",
	} {
		if found := strings.Join(explain(t, conn, sql).faults("Other"), "; "); !strings.Contains(found, want) {
			t.Errorf("%s: found %q, want %q", sql, found, want)
		}
	}
}

// PostgreSQL inlines required_status, so that claims do not call a function for each row.
func TestRequiredStatusIsInlined(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rows, err := b.db.Query(t.Context(), `EXPLAIN (VERBOSE)
		SELECT FROM schedule s JOIN processes p USING (namespace, process_id)
		 WHERE p.status = required_status(s.task_type)`)
	lines, err := pgx.CollectRows(must(t, rows, err), pgx.RowTo[string])
	plan := strings.Join(must(t, lines, err), "\n")
	if strings.Contains(plan, "required_status") || !strings.Contains(plan, "CASE") {
		t.Error(plan)
	}
	for taskType, want := range map[process.TaskType]process.Status{
		process.TaskInit: process.StatusInit, process.TaskRepair: process.StatusError,
		process.TaskCall: process.StatusRunning, process.TaskCancel: process.StatusRunning,
	} {
		got := ask[process.Status](b, "SELECT required_status($1::text::task_type)", taskType)
		equal(t, "the status for "+string(taskType), got, want)
	}
}
