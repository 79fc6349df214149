package cron

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func utc(text string) *timestamppb.Timestamp {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return timestamppb.New(t)
}

func nightly() *progressorv1.Cron {
	return &progressorv1.Cron{
		Namespace: "demo", CronId: "nightly", Etag: "7",
		Spec:   &progressorv1.CronSpec{Expressions: []string{"0 3 * * *"}, Timezone: "Europe/Berlin"},
		Policy: &progressorv1.CronPolicy{OverlapAction: progressorv1.OverlapAction_OVERLAP_ACTION_SKIP},
		Target: &progressorv1.CronTarget{Target: &progressorv1.CronTarget_StartProcess{
			StartProcess: &progressorv1.StartProcessTarget{Args: []byte("one\ntwo")},
		}},
		LastFireTime:      utc("2026-11-20T02:00:00Z"),
		NextFireTimes:     []*timestamppb.Timestamp{utc("2026-11-21T02:00:00Z"), utc("2026-11-22T02:00:00Z")},
		FiresByDecision:   map[string]int64{"fired": 1200, "missed": 0, "skipped_overlap": 3},
		RunningProcessIds: []string{"~cron/nightly\x1b"},
	}
}

func TestCronCreate(t *testing.T) {
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	out := p.OK(t, "cron", "create", "demo", "nightly", "0 3 * * *", "0 12 * * SUN", "--timezone", "Europe/Berlin",
		"--jitter", "5m",
		"--exclude", "* * 24,25 12 *", "--daylight-gap", "skip", "--daylight-overlap", "BOTH", "--max-fires", "9",
		"--start-time", "2026-01-01T00:00:00Z",
		"--start-process", "--args", `{"a": 1}`, "--target-namespace", "other", "--process-metadata", `{"k": "v"}`,
		"--run-end", "init",
		"--overlap", "cancel-prev", "--failure", "BACKOFF", "--concurrency", "queue", "--misfire", "CATCH_UP_LIMITED",
		"--catchup-limit", "3",
		"--max-concurrency", "2", "--queue-limit", "10", "--catchup-window", "1h", "--misfire-threshold", "2s",
		"--timeout", "8s", "--max-attempts", "4",
		"--retry-backoff", "2s", "--retry-backoff-max", "1m", "--retry-backoff-factor", "1.5", "--pause-after-failures",
		"5", "--max-overlap", "6",
		"--metadata", `{"team": "billing"}`, "--paused", "--reason", "not yet")
	clitest.WantLines(t, out, "cron demo/nightly", "state paused", "note not yet",
		"expressions 0 3 * * *; 0 12 * * SUN",
		"fires at 03:00 every day; and at 12:00 on Sunday; except on the 24th and 25th of December, Europe/Berlin, "+
			"from 2026-01-01T00:00:00Z",
		"policy overlap CANCEL_PREV, max_overlap 6, failure BACKOFF, max_attempts 4, retry_backoff 2s, "+
			"pause_after_failures 5, concurrency QUEUE, max_concurrency 2, "+
			"queue_limit 10, misfire CATCH_UP_LIMITED, catchup_limit 3, catchup_window 1h, misfire_threshold 2s, "+
			"timeout 8s",
		`target start a process in other with {"a":1}, until its INIT task ends`)
	attributes := func(key, value string) *structpb.Struct {
		s, err := structpb.NewStruct(map[string]any{key: value})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	clitest.WantRequest(t, f.Last, &progressorv1.CreateCronRequest{Cron: &progressorv1.Cron{
		Namespace: "demo", CronId: "nightly", Paused: true, PauseNote: "not yet",
		Metadata: attributes("team", "billing"),
		Spec: &progressorv1.CronSpec{
			Expressions: []string{"0 3 * * *", "0 12 * * SUN"}, Timezone: "Europe/Berlin",
			Jitter: durationpb.New(5 * time.Minute), MaxFires: 9,
			ExcludeExpressions: []string{"* * 24,25 12 *"}, StartTime: utc("2026-01-01T00:00:00Z"),
			DaylightSaving: &progressorv1.DaylightSaving{Gap: progressorv1.DaylightSaving_GAP_SKIP,
				Overlap: progressorv1.DaylightSaving_OVERLAP_BOTH},
		},
		Policy: &progressorv1.CronPolicy{
			OverlapAction:     progressorv1.OverlapAction_OVERLAP_ACTION_CANCEL_PREV,
			FailureAction:     progressorv1.FailureAction_FAILURE_ACTION_BACKOFF,
			ConcurrencyPolicy: progressorv1.ConcurrencyPolicy_CONCURRENCY_POLICY_QUEUE,
			MisfirePolicy:     progressorv1.MisfirePolicy_MISFIRE_POLICY_CATCH_UP_LIMITED,
			CatchupLimit:      3, MaxConcurrency: 2, QueueLimit: 10, CatchupWindow: durationpb.New(time.Hour),
			MisfireThreshold: durationpb.New(2 * time.Second),
			Timeout:          durationpb.New(8 * time.Second), MaxAttempts: 4, PauseAfterFailures: 5, MaxOverlap: 6,
			RetryBackoff: &progressorv1.Backoff{Initial: durationpb.New(2 * time.Second),
				Max: durationpb.New(time.Minute), Factor: new(1.5)},
		},
		Target: &progressorv1.CronTarget{
			Target: &progressorv1.CronTarget_StartProcess{StartProcess: &progressorv1.StartProcessTarget{
				Namespace: "other", Args: []byte(`{"a": 1}`), Metadata: attributes("k", "v"),
				RunEnd: progressorv1.StartProcessTarget_RUN_END_INIT,
			}}},
	}})
	out = p.OK(t, "cron", "create", "demo", "ping", "@every 90s", "--http", "http://127.0.0.1:9000/ping", "--method", "PUT",
		"--header", "authorization=Bearer hunter2", "--success-code", "200,204", "--args", "body")
	if strings.Contains(out, "hunter2") {
		t.Errorf("a secret is shown:\n%s", out)
	}
	clitest.WantLines(t, out, "target PUT http://127.0.0.1:9000/ping with body")
	clitest.WantRequest(t, f.Last.(*progressorv1.CreateCronRequest).GetCron().GetTarget(),
		&progressorv1.CronTarget{Target: &progressorv1.CronTarget_Http{Http: &progressorv1.HttpTarget{
			Url: "http://127.0.0.1:9000/ping", Method: "PUT", Headers: map[string]string{"authorization": "Bearer hunter2"},
			SuccessCodes: []int32{200, 204}, Body: []byte("body"),
		}}})
	out = p.OK(t, "cron", "create", "demo", "report", "@daily", "--start-run", "scheduled_report", "--template-version",
		"3", "--scope", "system", "--scope-id", "daily",
		"--payload", `{"from": "${fire_time - duration('24h')}"}`, "--run-metadata", `{"k": "v"}`)
	clitest.WantLines(t, out,
		`target start a run of scheduled_report version 3 for system/daily with {"from":"${fire_time - `+
			`duration('24h')}"}`)
	payload, err := structpb.NewValue(map[string]any{"from": "${fire_time - duration('24h')}"})
	if err != nil {
		t.Fatal(err)
	}
	clitest.WantRequest(t, f.Last.(*progressorv1.CreateCronRequest).GetCron().GetTarget(),
		&progressorv1.CronTarget{Target: &progressorv1.CronTarget_StartRun{StartRun: &progressorv1.StartRunTarget{
			Type: "scheduled_report", Version: 3, Scope: "system", ScopeId: "daily", PayloadTemplate: payload,
			Metadata: attributes("k", "v"),
		}}})
	out = p.OK(t, "cron", "create", "demo", "digest", "@daily", "--job", "digest", "--target-namespace", "mail",
		"--args", `{"list": "customers"}`,
		"--job-options", `{"max_retry": 3, "timeout": "10m"}`)
	clitest.WantLines(t, out, `target enqueue the job digest in mail with {"list":"customers"}`)
	clitest.WantRequest(t, f.Last.(*progressorv1.CreateCronRequest).GetCron().GetTarget(),
		&progressorv1.CronTarget{Target: &progressorv1.CronTarget_EnqueueJob{EnqueueJob: &progressorv1.EnqueueJobTarget{
			Namespace: "mail", Name: "digest", Args: structpb.NewStructValue(attributes("list", "customers")),
			Options: &progressorv1.JobOptions{MaxRetry: 3, Timeout: durationpb.New(10 * time.Minute)},
		}}})
}

func TestCronFile(t *testing.T) {
	f := &clitest.Engine{Cron: nightly()}
	p := clitest.Serve(t, newCommands, f)
	p.Stdin = "spec: {expressions: ['@daily'], jitter: 1m30s}\n" +
		"policy: {overlap-action: skip, misfirePolicy: catch_up_limited, catchup_limit: 2}\n" +
		"target: {notify_process: {process_id: payroll, args: {pay: [1, true]}}}\n"
	p.OK(t, "cron", "create", "demo", "x", "-f", "-", "--catchup-limit", "4")
	want := &progressorv1.Cron{
		Namespace: "demo", CronId: "x",
		Spec: &progressorv1.CronSpec{Expressions: []string{"@daily"}, Jitter: durationpb.New(90 * time.Second)},
		Policy: &progressorv1.CronPolicy{
			OverlapAction: progressorv1.OverlapAction_OVERLAP_ACTION_SKIP, CatchupLimit: 4,
			MisfirePolicy: progressorv1.MisfirePolicy_MISFIRE_POLICY_CATCH_UP_LIMITED,
		},
		Target: &progressorv1.CronTarget{
			Target: &progressorv1.CronTarget_NotifyProcess{NotifyProcess: &progressorv1.NotifyProcessTarget{
				ProcessId: "payroll", Args: []byte(`{"pay":[1,true]}`),
			}}},
	}
	clitest.WantRequest(t, f.Last, &progressorv1.CreateCronRequest{Cron: want})

	// The output of get can be the input of update. If nothing was changed, update returns the
	// stored cron.
	p.Stdin = p.OK(t, "cron", "get", "demo", "nightly", "-o", "json")
	good := p.Stdin
	p.Stdin = "spec: {expressions: ['@daily'], timezone: Mars}\ntarget: {start_process: {}}\n"
	for _, args := range [][]string{
		{"cron", "create", "demo", "x", "-f", "-"}, {"cron", "update", "demo", "nightly", "-f", "-"},
	} {
		// The error has the path in the file, not the flag.
		r := p.Run(t, args...)
		if r.Code != cli.ExitUsage || !strings.HasPrefix(r.Stderr, "progressor: spec.timezone: ") {
			t.Errorf("%v: code %d, %s", args, r.Code, r.Stderr)
		}
	}
	p.Stdin = good
	p.OK(t, "cron", "update", "demo", "nightly", "-f", "-")
	clitest.WantRequest(t, f.Last, &progressorv1.UpdateCronRequest{Cron: nightly()})

	f.Cron.Paused, f.Cron.PauseNote = true, "why"
	p.OK(t, "cron", "update", "demo", "nightly", "30 4 * * *", "--timeout", "1m", "--args", "three", "--etag", "8")
	changed := nightly()
	changed.Spec.Expressions, changed.Policy.Timeout, changed.Etag = []string{"30 4 * * *"},
		durationpb.New(time.Minute), "8"
	changed.Target.GetStartProcess().Args, changed.Paused, changed.PauseNote = []byte("three"), true, "why"
	clitest.WantRequest(t, f.Last, &progressorv1.UpdateCronRequest{Cron: changed})
}

// Errors name the invalid flag.
func TestCronRefusals(t *testing.T) {
	f := &clitest.Engine{Cron: nightly()}
	p := clitest.Serve(t, newCommands, f)
	good := []string{"cron", "create", "demo", "x", "--start-process", "0 3 * * *"}
	for args, want := range map[string]string{
		"--overlap|some": `--overlap: unknown value "some"; use one of ALLOW, SKIP, CANCEL_PREV, PARALLEL, BUFFER_ONE`,
		"0 25 * * *":     `EXPRESSION 2: "0 25 * * *": hour`, "--timezone|Mars": "--timezone: ",
		"--exclude|@every 9s":        "--exclude: ",
		"--misfire|catch_up_limited": "--catchup-limit: must be 1 to 100000", "--max-attempts=-1": "--max-attempts: ",
		"--retry-backoff-factor|0.5": "--retry-backoff-factor: ", "--start-time|soon": "--start-time: must be a time",
		"--method|PUT": "--method requires --http",
		"--end-time|2020-01-01T00:00:00Z|--start-time|2021-01-01T00:00:00Z": "--end-time: must be later:",
		"--file|/does/not/exist": "no such file",
		"--process-metadata|[]":  "--process-metadata: must be a JSON object", "--http|http://a": "--http", "--target-namespace|a b": "--target-namespace: ",
	} {
		r := p.Run(t, append(good[:len(good):len(good)], strings.Split(args, "|")...)...)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: code %d: %s", args, r.Code, r.Stderr)
		}
	}
	for line, want := range map[string]string{
		"create|demo|x|--start-process": "EXPRESSION: is required", "create|demo|x|0|3|*|*|*|--start-process": "quote it, as in '0 3 * * *'", "update|demo|x": "nothing to change", "create|demo|x|@daily": "target: is required: set one of --start-process", "create|demo|x|@daily|--http|ftp://a": "--http: must be http://HOST/PATH or https://HOST/PATH", "create|demo|x|@daily|--http|localhost:9000": "--http: ",
		"create|demo|x|@daily|--args|a":                                     "requires --start-process",
		"create|demo|x|@daily|--notify|p|--process-metadata|{}":             "requires --start-process",
		"backfill|demo|x|--from|1h":                                         "must not be before --from",
		"create|demo|x|@daily|--start-run|Big":                              "--start-run: ",
		"create|demo|x|@daily|--start-run|r|--payload|{\"a\": \"${fire}\"}": "--payload: a: ",
		"create|demo|x|@daily|--start-run|r|--args|a":                       "use --payload",
		"create|demo|x|@daily|--notify|p|--scope|a":                         "--scope requires --start-run",
		"create|demo|x|@daily|--job|a|--args|{":                             "--args: must be JSON",
		"create|demo|x|@daily|--job|a|--args-base64|YQ==":                   "--args-base64: args of a job are JSON",
		"create|demo|x|@daily|--job|a|--job-options|{max_retries: 1}": "--job-options: line 1: max_retries: " +
			"unknown field", "create|demo|x|@daily|--notify|p|--job-options|{}": "--job-options requires --job",
		"create|demo|x|@daily|--job|a|--job-options|{run_time: '2030-01-01T00:00:00Z'}": "--job-options: run_time: ", "create|demo|x|@daily|--job|a|--http|http://a": "--http",
		"trigger|demo|x|--overlap|often": "--overlap: unknown", "preview": "set either NS and ID of a cron",
		"preview|demo": "set either NS and ID of a cron", "preview|demo|x|-e|@daily": "set either NS and ID",
		"preview|demo|x|--timezone|UTC": "set either NS and ID", "preview|-e|@daily|--limit|0": "--limit",
		"preview|-e|@dayly":                 "EXPRESSION 1: ",
		"preview|-e|* * * * * *|--to|9000h": "--to: must be earlier: there are more than 3,000,000",
		"preview|-e|@daily|--to|-1h":        "--to: must be after",
	} {
		if r := p.Run(t, append([]string{"cron"}, strings.Split(line, "|")...)...); r.Code != cli.ExitUsage ||
			!strings.Contains(r.Stderr, want) {
			t.Errorf("%s: code %d: %s", line, r.Code, r.Stderr)
		}
	}
}

// Errors of the engine also name the flag.
func TestCronRefusedByTheEngine(t *testing.T) {
	detail := &progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_INVALID,
		Field: "cron.target.start_process.namespace"}
	f := &clitest.Engine{Err: clitest.EngineError(connect.CodeInvalidArgument,
		`cron.target.start_process.namespace: there is no namespace "x"`, detail)}
	r := clitest.Serve(t, newCommands, f).Run(t, "cron", "create", "demo", "a", "@daily", "--start-process",
		"--target-namespace", "x")
	if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, `--target-namespace: there is no namespace "x"`) ||
		strings.Contains(r.Stderr, "cron.target") {
		t.Errorf("%d %s", r.Code, r.Stderr)
	}
}

func TestCronErrorsNameTheNextCommand(t *testing.T) {
	for reason, want := range map[progressorv1.ErrorDetail_Reason]string{
		progressorv1.ErrorDetail_REASON_CRON_NOT_FOUND:   "Next: progressor cron list demo\n",
		progressorv1.ErrorDetail_REASON_STALE_ETAG:       "Next: progressor cron get demo 'a b'\n",
		progressorv1.ErrorDetail_REASON_PROCESS_EXISTS:   "Next: progressor cron get demo 'a b'\n",
		progressorv1.ErrorDetail_REASON_NAMESPACE_PAUSED: "Next: progressor namespace resume demo\n",
	} {
		f := &clitest.Engine{
			Err: clitest.EngineError(connect.CodeAborted, "no",
				&progressorv1.ErrorDetail{Reason: reason, Namespace: "demo", ProcessId: "~cron/a b"})}
		if r := clitest.Serve(t, newCommands, f).Run(t, "cron", "get", "demo", "a b"); r.Code != cli.ExitConflict ||
			!strings.HasSuffix(r.Stderr, want) {
			t.Errorf("%s: %d %s", reason, r.Code, r.Stderr)
		}
	}
}

func TestCronGetListFires(t *testing.T) {
	begin := utc("2026-11-20T02:00:00Z")
	f := &clitest.Engine{Cron: nightly(), Fires: []*progressorv1.Fire{
		{
			FireTime: begin, DecidedTime: timestamppb.New(begin.AsTime().Add(12 * time.Millisecond)),
			Decision: progressorv1.Decision_DECISION_FIRED, Attempt: 2,
			Status: progressorv1.FireStatus_FIRE_STATUS_FAILED, StartedTime: begin,
			EndedTime: timestamppb.New(begin.AsTime().Add(1500 * time.Millisecond)),
			Detail:    "503\nbusy", Manual: true,
		},
		{FireTime: begin, Decision: progressorv1.Decision_DECISION_MISSED,
			Status: progressorv1.FireStatus_FIRE_STATUS_SKIPPED, Reason: "paused", Count: 1234},
	}}
	p := clitest.Serve(t, newCommands, f)
	clitest.WantLines(t, p.OK(t, "cron", "get", "demo", "nightly"), "state active", "policy overlap SKIP",
		`start a process with one\ntwo`,
		"decisions fired 1,200, skipped_overlap 3", "next fires\n2026-11-21T02:00:00.000Z\n2026-11-22T02:00:00.000Z",
		`running`+"\n"+`~cron/nightly\u001b`)
	clitest.WantLines(t, p.OK(t, "cron", "list", "demo", "metadata.a = 1", "--page-size", "5"),
		"CRON STATE LAST FIRE NEXT FIRE RUNNING FIRES",
		"nightly active 2026-11-20T02:00:00.000Z 2026-11-21T02:00:00.000Z 1 at 03:00 every day, Europe/Berlin",
		"more: --page-token next")
	clitest.WantRequest(t, f.Last,
		&progressorv1.ListCronsRequest{Namespace: "demo", Filter: "metadata.a = 1", PageSize: 5})
	clitest.WantLines(t, p.OK(t, "cron", "next", "--page-size", "5"), "NEXT FIRE NAMESPACE CRON TARGET",
		`2026-11-21T02:00:00.000Z demo nightly start a process with one\ntwo`)
	clitest.WantRequest(t, f.Last, &progressorv1.ListNextCronsRequest{PageSize: 5})
	ledger := []string{"FIRE TIME DECIDED AFTER DECISION TIMES MANUAL ATTEMPT STATUS TOOK REASON",
		`2026-11-20T02:00:00.000Z 12ms FIRED yes 2 FAILED 1.5s 503\nbusy`}
	clitest.WantLines(t, p.OK(t, "cron", "fires", "demo", "nightly"),
		append(ledger, "2026-11-20T02:00:00.000Z MISSED 1,234 SKIPPED paused")...)
	clitest.WantLines(t, p.OK(t, "cron", "trigger", "demo", "nightly", "--overlap", "parallel"), ledger...)
	clitest.WantRequest(t, f.Last,
		&progressorv1.TriggerCronRequest{Namespace: "demo", CronId: "nightly",
			OverlapAction: progressorv1.OverlapAction_OVERLAP_ACTION_PARALLEL})
	clitest.WantLines(t, p.OK(t, "cron", "cancel", "demo", "nightly", "2026-11-20T02:00:00Z", "--reason", "wrong data"),
		ledger...)
	clitest.WantRequest(t, f.Last,
		&progressorv1.CancelFireRequest{Namespace: "demo", CronId: "nightly", FireTime: utc("2026-11-20T02:00:00Z"),
			Reason: "wrong data"})
	clitest.WantLines(t, p.OK(t, "cron", "rerun", "demo", "nightly", "2026-11-20T02:00:00Z", "--reason", "again"),
		ledger...)
	clitest.WantRequest(t, f.Last,
		&progressorv1.RerunFireRequest{Namespace: "demo", CronId: "nightly", FireTime: utc("2026-11-20T02:00:00Z"),
			Reason: "again"})
	clitest.WantLines(t, p.OK(t, "cron", "backfill", "demo", "nightly", "--from", "2026-11-01T00:00:00Z", "--to",
		"2026-11-02T00:00:00Z", "--max-concurrency", "3"), "backfills 1,234 fire times")
	clitest.WantRequest(t, f.Last, &progressorv1.BackfillCronRequest{
		Namespace: "demo", CronId: "nightly", FromTime: utc("2026-11-01T00:00:00Z"),
		ToTime: utc("2026-11-02T00:00:00Z"), MaxConcurrency: 3,
	})
	clitest.WantLines(t, p.OK(t, "cron", "stop-backfill", "demo", "nightly", "--reason", "enough"),
		"stopped 2 backfills")
	clitest.WantRequest(t, f.Last,
		&progressorv1.StopBackfillsRequest{Namespace: "demo", CronId: "nightly", Reason: "enough"})
	f.Cron.Backfills = []*progressorv1.Backfill{
		{FromTime: utc("2026-11-01T00:00:00Z"), ToTime: utc("2026-11-02T00:00:00Z"), MaxConcurrency: 3}}
	clitest.WantLines(t, p.OK(t, "cron", "get", "demo", "nightly"),
		"backfills 2026-11-01T00:00:00.000Z to 2026-11-02T00:00:00.000Z, 3 at a time")
	f.Cron.Paused, f.Cron.PauseNote = true, "why"
	clitest.WantLines(t, p.OK(t, "cron", "list", "demo"), "nightly paused 2026-11-20T02:00:00.000Z 1 at")
	f.Cron.Paused, f.Cron.NextFireTimes = false, nil
	clitest.WantLines(t, p.OK(t, "cron", "get", "demo", "nightly"), "state over")
}

func TestCronResumeShowsWaitingFires(t *testing.T) {
	resumed := func(f *clitest.Engine) bool { _, ok := f.Last.(*progressorv1.ResumeCronRequest); return ok }
	catchUp := []string{"--catch-up"}
	skip := &progressorv1.CronPolicy{MisfirePolicy: progressorv1.MisfirePolicy_MISFIRE_POLICY_SKIP}
	limited := &progressorv1.CronPolicy{MisfirePolicy: progressorv1.MisfirePolicy_MISFIRE_POLICY_CATCH_UP_LIMITED,
		CatchupLimit: 2}
	for _, tt := range []struct {
		name, answer string
		waiting      int64
		asks         bool
		policy       *progressorv1.CronPolicy
		args         []string
		want         string
		resumed      bool
	}{
		{"nothing waits", "", 0, true, nil, nil, "", true},
		{"by default", "", 3, true, nil, nil, "3 fire times wait: none of them will run (use --catch-up to run them)\n",
			true},
		{"a script", "", 3, false, nil, catchUp,
			"3 fire times wait: all of them are decided, in order (misfire policy FIRE_NOW)\n", true},
		{"one", "", 1, false, nil, catchUp, "1 fire time waits: ", true},
		{"many", "", 1000, false, nil, catchUp, "at least 1,000 fire times wait: ", true},
		{"yes", "y\n", 3, true, nil, catchUp, "resume? [y/N]", true},
		{"no", "n\n", 3, true, nil, catchUp, "not resumed", false},
		{"silence", "", 3, true, nil, catchUp, "not resumed", false},
		{"not asked", "", 3, true, nil, []string{"--catch-up", "--yes"}, "3 fire times wait", true},
		{"the newest", "", 3, false, skip, catchUp, "only the newest is decided, unless it is more than 5s late", true},
		{"some", "", 3, false, limited, catchUp, "the newest 2 are decided", true},
	} {
		f := &clitest.Engine{Cron: nightly()}
		f.Cron.Paused, f.Cron.Policy, f.Cron.WaitingFires = true, tt.policy, tt.waiting
		p := clitest.Serve(t, newCommands, f)
		p.Interactive, p.Stdin = tt.asks, tt.answer
		r := p.Run(t, append([]string{"cron", "resume", "demo", "nightly"}, tt.args...)...)
		if resumed(f) != tt.resumed || (r.Code == cli.ExitOK) != tt.resumed || !strings.Contains(r.Stderr, tt.want) ||
			tt.want == "" && r.Stderr != "" {
			t.Errorf("%s: code %d, resumed %v: %s", tt.name, r.Code, resumed(f), r.Stderr)
		}
	}
}

// The calendar shows a month without fires, days outside of the preview, a day with a time that the
// clock skips, and a range across the end of a month.
func TestCronPreviewDraws(t *testing.T) {
	out := clitest.Program{Commands: newCommands}.OK(t, "cron", "preview", "-e", "30 2 * * *", "-e", "0 12 * * SUN",
		"--timezone", "Europe/Berlin", "--from", "2027-03-26T00:00:00+01:00")
	const want = `at 02:30 every day; and at 12:00 on Sunday, Europe/Berlin
first: Fri 2027-03-26 02:30:00 +01:00

March 2027
 Mo   Tu   We   Th   Fr   Sa   Su
                    [26] [27] [28]
[29] [30] [31]

April 2027
 Mo   Tu   We   Th   Fr   Sa   Su
               [ 1] [ 2] [ 3] [ 4]
[ 5] [ 6] [ 7] [ 8] [ 9] [10] [11]
[12] [13] [14] [15] [16] [17] [18]
[19] [20] [21] [22] [23] [24] [25]

DAYS                                            FIRES A DAY  TIMES
26-27 Mar, 29 Mar-3 Apr, 5-10 Apr, 12-17 Apr, 19-24 Apr  1  02:30
28 Mar                                          2            03:00 12:00
4 Apr, 11 Apr, 18 Apr, 25 Apr                   2            02:30 12:00
`
	clitest.WantLines(t, out, want)
	out = clitest.Program{Commands: newCommands}.OK(t, "cron", "preview", "-e", "*/20 * * * * *", "--from",
		"2027-03-02T23:59:30Z", "--to", "2027-03-04T00:00:00Z")
	clitest.WantLines(t, out, "\n          [ 2] [ 3]\n", "2 Mar 1 23:59:40\n",
		"3 Mar 4,320 00:00 00:00:20 00:00:40 00:01 00:01:20 00:01:40 00:02 00:02:20 … 23:59:40")
	if out := (clitest.Program{Commands: newCommands}).OK(t, "cron", "preview", "-e", "0 0 29 2 *", "--from",
		"2027-01-01T00:00:00Z"); !strings.HasSuffix(out, "\nno fire times before 2027-02-01 00:00\n") {
		t.Errorf("%s", out)
	}
	out = clitest.Program{Commands: newCommands}.OK(t, "cron", "preview", "-e", "@every 90m", "--start-time",
		"2027-01-01T00:00:00Z", "--from", "2027-01-01T00:00:00Z", "-o", "json", "--limit", "2")
	if strings.Join(strings.Fields(out), "") !=
		`{"fireTimes":["2027-01-01T00:00:00Z","2027-01-01T01:30:00Z"],`+
			`"words":"every1h30m,UTC,from2027-01-01T00:00:00Z"}` {
		t.Errorf("%s", out)
	}
	f := &clitest.Engine{Cron: nightly()}
	p := clitest.Serve(t, newCommands, f)
	f.Cron.Paused, f.Cron.PauseNote = true, "why"
	clitest.WantLines(t, p.OK(t, "cron", "preview", "demo", "nightly", "--from", "2027-01-01T00:00:00Z"),
		"paused: why\nat 03:00 every day, Europe/Berlin")
	p.OK(t, "cron", "preview", "demo", "nightly", "--from", "2027-01-01T00:00:00Z", "-o", "json", "--limit", "7")
	clitest.WantRequest(t, f.Last, &progressorv1.PreviewCronRequest{
		Of: &progressorv1.PreviewCronRequest_Cron{
			Cron: &progressorv1.CronRef{Namespace: "demo", CronId: "nightly"}},
		FromTime: utc("2027-01-01T00:00:00Z"), ToTime: utc("2027-01-31T23:00:00Z"), Limit: 7,
	})
}
