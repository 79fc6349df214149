package cron

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// everySecondAt returns a cron that fires every second, with its state as of 10:00:00.
func everySecondAt(t *testing.T, policy Policy) (Cron, State) {
	t.Helper()
	if err := policy.Validate(); err != nil {
		t.Fatal(err)
	}
	s := compile(t, Spec{Expressions: []string{"* * * * * *"}})
	return Cron{Key: "shop/report", Schedule: s, Policy: policy}, NewState(at("2026-03-01 10:00:00"))
}

// rowsOf lists the rows of a step: second, decision, status, attempt.
func rowsOf(step Step) []string {
	var list []string
	for _, fire := range step.Fires {
		line := fmt.Sprintf("%s %s %s", fire.Time.Format("05"), fire.Decision, fire.Status)
		if fire.Attempt > 0 {
			line += fmt.Sprint(" ", fire.Attempt)
		}
		if fire.Count > 1 {
			line += fmt.Sprint(" ×", fire.Count)
		}
		list = append(list, line)
	}
	for _, cancel := range step.Cancels {
		list = append(list, "cancel "+cancel.Format("05"))
	}
	for _, start := range step.Starts {
		list = append(list, fmt.Sprintf("start %s %d", start.Fire.Format("05"), start.Attempt))
	}
	return list
}

func expect(t *testing.T, what string, step Step, want ...string) State {
	t.Helper()
	if got := rowsOf(step); !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
	return step.State
}

func second(n int) time.Time { return at("2026-03-01 10:00:00").Add(time.Duration(n) * time.Second) }

// The policies decide the five fire times of a cron that fires every second and is evaluated 5 s
// late.
func TestLateExamples(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy Policy
		want   []string
	}{
		{"FIRE_NOW, five slots", Policy{MaxConcurrency: 5},
			[]string{"01 fired running 1", "02 fired running 1", "03 fired running 1", "04 fired running 1",
				"05 fired running 1"}},
		{"FIRE_NOW, one slot, SKIP, ALLOW",
			Policy{MaxConcurrency: 1, Concurrency: ConcurrencySkip, Overlap: OverlapActionAllow},
			[]string{"01 missed skipped", "02 missed skipped", "03 missed skipped", "04 missed skipped",
				"05 fired running 1"}},
		{"CATCH_UP_LIMITED 2", Policy{MaxConcurrency: 5, Misfire: MisfireCatchUpLimited, CatchUpLimit: 2},
			[]string{"01 missed skipped", "02 missed skipped", "03 missed skipped", "04 fired running 1",
				"05 fired running 1"}},
		{"SKIP", Policy{MaxConcurrency: 5, Misfire: MisfireSkip},
			[]string{"01 missed skipped", "02 missed skipped", "03 missed skipped", "04 missed skipped",
				"05 fired running 1"}},
		{"a window of 2 s", Policy{MaxConcurrency: 5, CatchUpWindow: 2 * time.Second},
			[]string{"01 missed skipped", "02 missed skipped", "03 fired running 1", "04 fired running 1",
				"05 fired running 1"}},
		{"CANCEL_PREV: each run replaces the previous one",
			Policy{Overlap: OverlapActionCancelPrev, Misfire: MisfireCatchUpLimited, CatchUpLimit: 2},
			[]string{"01 missed skipped", "02 missed skipped", "03 missed skipped", "04 fired running 1",
				"05 fired running 1", "cancel 04"}},
		{"QUEUE, queue_limit 2", Policy{Concurrency: ConcurrencyQueue, QueueLimit: 2},
			[]string{"01 missed skipped", "02 missed skipped", "03 fired running 1", "04 queued scheduled",
				"05 queued scheduled"}},
		{"BUFFER_ONE", Policy{Overlap: OverlapActionBufferOne},
			[]string{"01 missed skipped", "02 missed skipped", "03 missed skipped", "04 fired running 1",
				"05 queued scheduled"}},
		{"PARALLEL, max_overlap 3", Policy{Overlap: OverlapActionParallel, MaxOverlap: 3},
			[]string{"01 missed skipped", "02 missed skipped", "03 fired running 1", "04 fired running 1",
				"05 fired running 1"}},
	} {
		cron, state := everySecondAt(t, test.policy)
		step := cron.Tick(state, second(5))
		expect(t, test.name, step, test.want...)
		if !step.Next.Equal(second(6)) || step.Over {
			t.Errorf("%s: next %s, over %t, want 10:00:06", test.name, step.Next, step.Over)
		}
		if again := cron.Tick(step.State, second(5)); len(rowsOf(again)) != 0 {
			t.Errorf("%s: decided twice: %q", test.name, rowsOf(again))
		}
	}
}

func TestMisfireThreshold(t *testing.T) {
	cron, state := everySecondAt(t, Policy{Misfire: MisfireSkip, MisfireThreshold: 500 * time.Millisecond})
	expect(t, "as late as the threshold", cron.Tick(state, second(1).Add(500*time.Millisecond)), "01 fired running 1")
	expect(t, "later than the threshold", cron.Tick(state, second(1).Add(500*time.Millisecond+1)), "01 missed skipped")
}

// The policies decide a fire time that is due while a previous run is running, or after that run
// has ended.
func TestPreviousRunExamples(t *testing.T) {
	for _, test := range []struct {
		overlap OverlapAction
		want    []string
	}{
		{OverlapActionParallel, []string{"02 fired running 1"}},
		{OverlapActionAllow, []string{"02 skipped_concurrency skipped"}},
		{OverlapActionCancelPrev, []string{"02 fired running 1", "cancel 01"}},
	} {
		cron, state := everySecondAt(t, Policy{MaxConcurrency: 1, Concurrency: ConcurrencySkip, Overlap: test.overlap})
		state = cron.Tick(state, second(1)).State
		expect(t, fmt.Sprint("overlap ", test.overlap), cron.Tick(state, second(2)), test.want...)
	}

	cron, state := everySecondAt(t, Policy{MaxConcurrency: 2, Overlap: OverlapActionParallel})
	for n := 1; n <= 3; n++ {
		state = cron.Tick(state, second(n)).State
	}
	state = cron.Ended(state, second(3), Success, second(3), second(3)).State
	expect(t, "PARALLEL, the newest has ended and two older ones run", cron.Tick(state, second(4)),
		"04 skipped_concurrency skipped")

	for _, test := range []struct {
		policy  Policy
		attempt int
	}{
		{Policy{Failure: FailureRetry}, 3},
		{Policy{Failure: FailureRetry, MaxAttempts: 2}, 1},
		{Policy{Failure: FailureRunNew}, 1},
	} {
		cron, state := everySecondAt(t, test.policy)
		state.Previous = &Run{Fire: second(0), Attempt: 2, Status: Failed, Ended: second(1)}
		expect(t, "after a failed attempt 2", cron.Tick(state, second(1)),
			fmt.Sprint("01 fired running ", test.attempt))
	}

	cron, state = everySecondAt(t, Policy{Overlap: OverlapActionSkip, Failure: FailureRetry})
	state = cron.Tick(state, second(1)).State
	state = expect(t, "while run 1 is running", cron.Tick(state, second(2)), "02 skipped_overlap skipped")
	state = cron.Ended(state, second(1), Failed, second(2), second(2)).State
	expect(t, "a skipped fire is not the previous run", cron.Tick(state, second(3)), "03 fired running 2")

	cron, state = everySecondAt(t, Policy{Overlap: OverlapActionCancelPrev, Failure: FailureRetry})
	state = cron.Tick(state, second(1)).State
	state = expect(t, "CANCEL_PREV + RETRY", cron.Tick(state, second(2)), "02 fired running 1", "cancel 01")
	state = cron.Ended(state, second(1), Cancelled, second(2), second(2)).State
	state = cron.Ended(state, second(2), Success, second(3), second(3)).State
	expect(t, "the end of a replaced run is not a failure", cron.Tick(state, second(3)), "03 fired running 1")
}

func TestFailures(t *testing.T) {
	cron, state := everySecondAt(t, Policy{Failure: FailureSkip})
	state = cron.Tick(state, second(1)).State
	state = cron.Ended(state, second(1), Timeout, second(1), second(1)).State
	state = expect(t, "SKIP", cron.Tick(state, second(2)), "02 skipped_failure skipped")
	expect(t, "SKIP: a failure skips only one fire", cron.Tick(state, second(3)), "03 fired running 1")

	cron, state = everySecondAt(t,
		Policy{Failure: FailureBackoff, RetryBackoff: Backoff{Steps: []time.Duration{2 * time.Second}}})
	state = cron.Tick(state, second(1)).State
	state = cron.Ended(state, second(1), Failed, second(2), second(2)).State
	state = expect(t, "BACKOFF", cron.Tick(state, second(3)), "02 skipped_failure skipped",
		"03 skipped_failure skipped")
	expect(t, "BACKOFF: after the wait", cron.Tick(state, second(4)), "04 fired running 2")

	cron, state = everySecondAt(t, Policy{PauseAfterFailures: 2})
	for n := 1; n <= 2; n++ {
		state = cron.Tick(state, second(n)).State
		step := cron.Ended(state, second(n), Failed, second(n), second(n))
		state = step.State
		if paused := n == 2; state.Paused != paused || (step.Pause != "") != paused || step.Next.IsZero() != paused {
			t.Errorf("failure %d: %+v", n, step)
		}
	}
	expect(t, "paused", cron.Tick(state, second(9)))
	manual := cron.Trigger(state, OverlapActionDefault, second(3))
	if step := cron.Ended(manual.State, manual.Fires[0].Time, Failed, second(4), second(4)); step.Pause != "" ||
		step.State.Failures != 3 {
		t.Errorf("a failure during the pause: %q after %d, want no second pause", step.Pause, step.State.Failures)
	}
	if n := cron.Waiting(state, second(9), 100); n != 7 {
		t.Errorf("%d fire times wait, want 7", n)
	}
	if step := cron.Resume(state, true, second(9)); len(step.Fires) != 7 || step.Fires[0].Decision != Missed ||
		step.Fires[0].Reason != "paused" {
		t.Errorf("skip_missed: %q", rowsOf(step))
	}
	resumed := cron.Resume(state, false, second(4)).State
	failed := cron.Ended(resumed, second(3), Failed, second(4), second(4)).State
	if resumed.Paused || failed.Paused {
		t.Error("a resume must reset the failures")
	}

	cron, state = everySecondAt(t,
		Policy{Failure: FailureHalfOpen, PauseAfterFailures: 2, RetryBackoff: Backoff{Initial: 2 * time.Second}})
	for n := 1; n <= 2; n++ {
		state = cron.Tick(state, second(n)).State
		state = cron.Ended(state, second(n), Failed, second(n), second(n)).State
	}
	state = expect(t, "the circuit is open", cron.Tick(state, second(3)), "03 skipped_failure skipped")
	if step := cron.Trigger(state, OverlapActionDefault, second(3)); step.Fires[0].Decision != Fired ||
		!step.State.Trial.Equal(second(3)) {
		t.Errorf("a manual trigger must count as the trial: %+v, of %s", step.Fires[0], step.State.Trial)
	}
	state = expect(t, "a trial", cron.Tick(state, second(4)), "04 fired running 1")
	older := state
	older.Running = append(older.Running[:1:1], second(2))
	if step := cron.Ended(older, second(2), Failed, second(3), second(5)); !step.State.Trial.Equal(second(4)) {
		t.Errorf("a run that ended before the trial: the next trial counts from %s", step.State.Trial)
	}
	state = cron.Ended(state, second(4), Failed, second(5), second(5)).State
	state = expect(t, "after a failed trial, the wait doubles", cron.Tick(state, second(8)),
		"05 skipped_failure skipped", "06 skipped_failure skipped", "07 skipped_failure skipped",
		"08 skipped_failure skipped")
	state = expect(t, "the second trial", cron.Tick(state, second(9)), "09 fired running 1")
	state = cron.Ended(state, second(9), Success, second(9), second(9)).State
	expect(t, "closed", cron.Tick(state, second(10)), "10 fired running 1")
}

func TestQueues(t *testing.T) {
	cron, state := everySecondAt(t, Policy{Concurrency: ConcurrencyQueue, Failure: FailureRetry})
	state = cron.Tick(state, second(3)).State
	state = expect(t, "the oldest queued run starts, with the next attempt",
		cron.Ended(state, second(1), Failed, second(3), second(3)), "start 02 2")
	state = expect(t, "the next queued run starts", cron.Ended(state, second(2), Success, second(3), second(3)),
		"start 03 1")
	expect(t, "a second end changes nothing", cron.Ended(state, second(2), Failed, second(3), second(3)))

	cron, state = everySecondAt(t, Policy{Overlap: OverlapActionBufferOne})
	state = cron.Tick(state, second(2)).State
	state = cron.Pause(state, second(2)).State
	state = expect(t, "a queued run does not start during a pause",
		cron.Ended(state, second(1), Success, second(2), second(2)))
	expect(t, "it starts after the pause", cron.Resume(state, false, second(2)), "start 02 1")
}

func TestTriggerAndBackfill(t *testing.T) {
	cron, state := everySecondAt(t, Policy{MaxConcurrency: 2, Failure: FailureSkip})
	state = cron.Pause(state, second(0)).State
	step := cron.Trigger(state, OverlapActionDefault, second(3))
	if fire := step.Fires[0]; fire.Decision != Fired || !fire.Manual ||
		!fire.Time.Equal(second(3).Add(time.Microsecond)) || !step.Next.IsZero() {
		t.Errorf("triggered while paused: %+v, next %s", fire, step.Next)
	}
	step = cron.Trigger(step.State, OverlapActionSkip, second(3))
	if fire := step.Fires[0]; fire.Decision != SkippedOverlap || !fire.Time.Equal(second(3).Add(2*time.Microsecond)) {
		t.Errorf("a second trigger in the same microsecond, with SKIP: %+v", fire)
	}
	state = cron.Ended(step.State, second(3).Add(time.Microsecond), Failed, second(4), second(4)).State
	if fire := cron.Trigger(state, OverlapActionDefault, second(5)).Fires[0]; fire.Decision != Fired {
		t.Errorf("a trigger after a failure, with SKIP: %+v, want FIRED", fire)
	}

	known := func(fire time.Time) bool { return fire.Equal(second(2)) }
	step, rest := cron.Backfill(state, second(1), second(9), known, OverlapActionParallel, second(4))
	state = expect(t, "backfill up to now", step, "01 fired running 1", "03 fired running 1",
		"04 fired running 1")
	if !rest.IsZero() || state.Runs != 0 {
		t.Errorf("rest %s, runs %d", rest, state.Runs)
	}
	step, _ = cron.Backfill(state, second(5), second(5), known, OverlapActionParallel, second(6))
	state = step.State
	step, _ = cron.Backfill(state, second(5), second(6), func(time.Time) bool { return true }, OverlapActionParallel,
		second(6))
	if n := len(step.State.Backfills); n != 1 || !step.State.Backfills[0].To.Equal(second(6)) {
		t.Errorf("%d ranges, want one: %+v", n, step.State.Backfills)
	}
	expect(t, "the backfilled times are not decided again", cron.Resume(state, true, second(6)), "05 missed skipped",
		"06 missed skipped")

	cron, state = everySecondAt(t, Policy{MaxConcurrency: 10_000})
	step, rest = cron.Backfill(state, second(-5000), second(0), func(time.Time) bool { return false },
		OverlapActionDefault, second(0))
	if len(step.Fires) != 1000 || !rest.Equal(second(-4000)) {
		t.Errorf("%d rows, continued at %s, want 1,000 rows and the next fire time", len(step.Fires), rest)
	}
}

// A backfill may begin before the cron was created, but not before its start_time. @every counts
// from the creation of the cron.
func TestBackfillBeforeCreation(t *testing.T) {
	for _, test := range []struct {
		spec Spec
		want int
	}{
		{Spec{Expressions: []string{"* * * * * *"}, Created: second(0)}, 10},
		{Spec{Expressions: []string{"* * * * * *"}, Created: second(0), Start: second(-4)}, 4},
		{Spec{Expressions: []string{"@every 1s"}, Created: second(0)}, 0},
		{Spec{Expressions: []string{"@every 1s"}, Created: second(0), Start: second(-4)}, 4},
	} {
		cron := Cron{Schedule: compile(t, test.spec), Policy: Policy{MaxConcurrency: 100}}
		step, rest := cron.Backfill(NewState(second(0)), second(-10), second(0), func(time.Time) bool { return false },
			OverlapActionDefault, second(0))
		if len(step.Fires) != test.want || !rest.IsZero() {
			t.Errorf("%+v: %d rows, want %d; rest %s", test.spec, len(step.Fires), test.want, rest)
		}
	}
}

func TestMaxFires(t *testing.T) {
	s := compile(t, Spec{Expressions: []string{"* * * * * *"}, MaxFires: 3, End: second(60)})
	cron := Cron{Schedule: s, Policy: Policy{}}
	state := expect(t, "skipped fires do not count", cron.Tick(NewState(second(0)), second(2)), "01 missed skipped",
		"02 fired running 1")
	if list := cron.Upcoming(state, 10); len(list) != 2 || !list[0].Equal(second(3)) {
		t.Errorf("upcoming: %v, want the two remaining fire times", list)
	}
	cron.Policy.MaxConcurrency = 10
	step := cron.Tick(state, second(10))
	expect(t, "the rest", step, "03 missed skipped", "04 missed skipped", "05 missed skipped", "06 missed skipped",
		"07 missed skipped",
		"08 missed skipped", "09 fired running 1", "10 fired running 1")
	if !step.Over || !step.Next.IsZero() || len(cron.Upcoming(step.State, 10)) != 0 {
		t.Errorf("after three runs: over %t, next %s", step.Over, step.Next)
	}
	s = compile(t, Spec{Expressions: []string{"* * * * * *"}, End: second(2)})
	if step := (Cron{Schedule: s}).Tick(NewState(second(0)), second(2)); !step.Over || !step.Next.IsZero() {
		t.Errorf("at the end: over %t, next %s", step.Over, step.Next)
	}
}

// Kubernetes #42649: a cron stops forever after 100 missed times. Here, one and a half million
// missed times become one row, followed by 1,002 rows for the newest fire times.
func TestCatchUpOfMany(t *testing.T) {
	const late = 1_500_000
	cron, state := everySecondAt(t, Policy{Misfire: MisfireCatchUpLimited, CatchUpLimit: 2, MaxConcurrency: 5})
	var fires []Fire
	steps, count := 0, int64(0)
	for step := (Step{State: state}); step.Next.IsZero() || !step.Next.After(second(late)); steps++ {
		step = cron.Tick(step.State, second(late))
		if len(step.Fires) > 1000 {
			t.Fatalf("%d rows in a step", len(step.Fires))
		}
		fires = append(fires, step.Fires...)
	}
	for _, fire := range fires {
		count += fire.Count
	}
	if count != late || len(fires) != 1+1000+2 || fires[0].Count != late-1002 || fires[1001].Decision != Fired ||
		fires[1002].Decision != Fired {
		t.Errorf("%d fire times in %d rows and %d steps, the first for %d", count, len(fires), steps, fires[0].Count)
	}
	if want := "1498998 fire times from 2026-03-01T10:00:01Z to 2026-03-18T18:23:18Z"; !strings.HasSuffix(
		fires[0].Reason, want) {
		t.Errorf("reason %q, want %q at its end", fires[0].Reason, want)
	}

	cron, state = everySecondAt(t, Policy{MaxConcurrency: 5000})
	step := cron.Tick(state, second(2500))
	if len(step.Fires) != 1000 || !step.Next.Equal(second(2500)) {
		t.Errorf("FIRE_NOW: %d rows, next %s, want 1,000 rows and the next step at once", len(step.Fires), step.Next)
	}
}

// PARALLEL without max_overlap starts no run if the state would become too large for the process.
func TestRunsAreBounded(t *testing.T) {
	cron, state := everySecondAt(t, Policy{Overlap: OverlapActionParallel})
	for n := range MaxRuns {
		state.Running = append(state.Running, second(-n))
	}
	state.Previous = &Run{Fire: second(0), Attempt: 1, Status: Running}
	expect(t, "10,000 runs", cron.Tick(state, second(1)), "01 skipped_overlap skipped")
}

// A fire time is evaluated when its jitter has passed, and its lateness counts from then.
func TestJitterOfFires(t *testing.T) {
	s := compile(t, Spec{Expressions: []string{"* * * * *"}, Jitter: time.Minute})
	cron := Cron{Key: "shop/report", Schedule: s, Policy: Policy{Misfire: MisfireSkip, MaxConcurrency: 100}}
	state := NewState(second(0))
	for n := 1; n <= 50; n++ {
		fire := second(60 * n)
		due := s.Due(cron.Key, fire)
		window := cron
		window.Policy.CatchUpWindow = time.Second
		if step := window.Tick(state, due.Add(time.Second)); step.Fires[0].Decision != Fired {
			t.Fatalf("%s, decided a second late: %+v, want it within the window", fire, step.Fires[0])
		}
		if early := cron.Tick(state, due.Add(-time.Millisecond)); len(early.Fires) != 0 || !early.Next.Equal(due) {
			t.Fatalf("before %s: %q, next %s", due, rowsOf(early), early.Next)
		}
		step := cron.Tick(state, due)
		if len(step.Fires) != 1 || step.Fires[0].Decision != Fired || !step.Fires[0].Time.Equal(fire) {
			t.Fatalf("at %s: %q, want %s fired", due, rowsOf(step), fire)
		}
		state = step.State
	}
}
