package cron

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// ledger has the data that an engine would have stored for the steps.
type ledger struct {
	t     *rapid.T
	cron  Cron
	state State
	rows  []*modelRow
	now   time.Time
}

// apply stores a step as the engine does, and checks that it can be stored.
func (l *ledger) apply(step Step) {
	l.t.Helper()
	for _, start := range step.Starts {
		row := l.row(start.Fire)
		if row == nil || row.status != Scheduled {
			l.t.Fatalf("started %s, which is not queued", start.Fire)
		}
		row.status, row.Attempt = Running, start.Attempt
	}
	for _, fire := range step.Fires {
		if l.row(fire.Time) != nil {
			l.t.Fatalf("a second row of %s: %+v", fire.Time, fire)
		}
		if (fire.Decision == Fired) != (fire.Attempt > 0) || fire.Count != 1 {
			l.t.Fatalf("row %+v", fire)
		}
		if fire.Reason == "" && fire.Decision != Fired {
			l.t.Fatalf("a row without its reason: %+v", fire)
		}
		l.rows = append(l.rows, &modelRow{Fire: fire, status: fire.Status})
	}
	for _, cancel := range step.Cancels {
		l.row(cancel).replaced = true
	}
	// The state is read back from JSON.
	stored, err := json.Marshal(step.State)
	if err != nil {
		l.t.Fatal(err)
	}
	var read State
	if err := json.Unmarshal(stored, &read); err != nil {
		l.t.Fatal(err)
	}
	if again, _ := json.Marshal(read); string(again) != string(stored) {
		l.t.Fatalf("the state %s is read as %s", stored, again)
	}
	l.state = read
	if step.State.Paused != step.Next.IsZero() && !step.Over {
		l.t.Fatalf("paused %t, over %t, next %s", step.State.Paused, step.Over, step.Next)
	}
}

func (l *ledger) row(fire time.Time) *modelRow {
	for _, row := range l.rows {
		if row.Time.Equal(fire) {
			return row
		}
	}
	return nil
}

func (l *ledger) running() []time.Time {
	var list []time.Time
	for _, row := range l.rows {
		if row.status == Running && !row.independent {
			list = append(list, row.Time)
		}
	}
	return list
}

func lines(rows []*modelRow) []string {
	var list []string
	for _, row := range rows {
		list = append(list, row.line())
	}
	slices.Sort(list)
	return list
}

func drawPolicy(t *rapid.T) Policy {
	return Policy{
		Overlap:            OverlapAction(rapid.IntRange(1, 5).Draw(t, "overlap")),
		Failure:            FailureAction(rapid.IntRange(1, 5).Draw(t, "failure")),
		Concurrency:        ConcurrencyPolicy(rapid.IntRange(1, 2).Draw(t, "concurrency")),
		Misfire:            MisfirePolicy(rapid.IntRange(1, 3).Draw(t, "misfire")),
		MaxConcurrency:     rapid.Int32Range(0, 3).Draw(t, "max_concurrency"),
		QueueLimit:         rapid.SampledFrom([]int32{0, 1, 2}).Draw(t, "queue_limit"),
		CatchUpLimit:       rapid.Int32Range(1, 4).Draw(t, "catchup_limit"),
		CatchUpWindow:      rapid.SampledFrom([]time.Duration{0, 0, 3 * time.Minute}).Draw(t, "catchup_window"),
		RetryBackoff:       Backoff{Initial: 90 * time.Second, Max: 5 * time.Minute},
		MaxAttempts:        rapid.Int32Range(0, 3).Draw(t, "max_attempts"),
		PauseAfterFailures: rapid.Int32Range(0, 3).Draw(t, "pause_after_failures"),
		MisfireThreshold:   20 * time.Second,
		MaxOverlap:         rapid.SampledFrom([]int32{0, 2}).Draw(t, "max_overlap"),
	}
}

// For random events in random order, the decider and the model of the history produce the same
// ledger. Each fire time has one row, and the state of the caller does not change.
func TestDecisionsAgainstHistory(t *testing.T) {
	seen := map[Decision]int{}
	decide := func(t *rapid.T) {
		created := at("2026-03-01 10:00:00")
		spec := Spec{Expressions: []string{"* * * * *"}, Created: created,
			MaxFires: rapid.SampledFrom([]int64{0, 0, 0, 7}).Draw(t, "max_fires")}
		s, err := Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		policy := drawPolicy(t)
		if err := policy.Validate(); err != nil {
			t.Fatal(err)
		}
		l := &ledger{t: t, cron: Cron{Key: "shop/report", Schedule: s, Policy: policy,
			Refusable: rapid.Bool().Draw(t, "refusable")}, state: NewState(created), now: created}
		m := &model{policy: policy, maxFires: int(spec.MaxFires)}
		times := slices.Collect(s.Between(created.Add(1), created.Add(24*time.Hour)))
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			given := l.state
			before, _ := json.Marshal(given)
			event := l.event(t, m, times)
			if after, _ := json.Marshal(given); string(before) != string(after) {
				t.Fatalf("%s changed its argument from %s to %s", event, before, after)
			}
			got, want := lines(l.rows), lines(m.rows)
			if !slices.Equal(got, want) {
				t.Fatalf("%s at %s, policy %+v:\ngot\n%s\nwant\n%s\nstate %+v", event, l.now.Format("15:04:05"), policy,
					indented(got), indented(want), l.state)
			}
			if l.state.Paused != m.paused {
				t.Fatalf("%s: paused %t, want %t", event, l.state.Paused, m.paused)
			}
		}
		for _, row := range l.rows {
			seen[row.Decision]++
		}
	}
	rapid.Check(t, decide)
	if testing.Short() { // a short run draws a fifth
		return
	}
	for decision := Fired; decision <= Dropped; decision++ {
		// One of 180 runs of this test draws no row with the rarest decision.
		for again := 0; seen[decision] == 0; again++ {
			if again == 10 {
				t.Fatalf("no row was ever %s", decision)
			}
			rapid.Check(t, decide)
		}
	}
}

func indented(list []string) string {
	text := ""
	for _, line := range list {
		text += "  " + line + "\n"
	}
	return text
}

// event draws an event, and applies it to the decider and to the model.
func (l *ledger) event(t *rapid.T, m *model, times []time.Time) string {
	l.now = l.now.Add(time.Duration(rapid.OneOf(rapid.IntRange(0, 90), rapid.IntRange(0, 500)).Draw(t, "seconds")) *
		time.Second).
		Add(time.Duration(rapid.IntRange(1, 1e6).Draw(t, "microseconds")) * time.Microsecond)
	running := l.running()
	overlap := OverlapAction(rapid.IntRange(0, 5).Draw(t, "order's overlap"))
	switch event := rapid.SampledFrom(
		[]string{"tick", "tick", "tick", "end", "end", "refuse", "withdraw", "pause", "resume", "trigger", "backfill",
			"start past"}).Draw(t, "event"); event {
	case "end":
		if len(running) == 0 {
			return "nothing"
		}
		fire := rapid.SampledFrom(running).Draw(t, "run")
		status := rapid.SampledFrom([]Status{Success, Failed, Timeout, Cancelled}).Draw(t, "status")
		if row := l.row(fire); !row.replaced {
			row.status = status
			l.apply(l.cron.Ended(l.state, fire, status, l.now, l.now))
			m.end(fire, status, l.now)
			return fmt.Sprintf("%s ends %s", fire.Format("15:04:05"), status)
		}
		kept := l.state
		l.apply(l.cron.Ended(l.state, fire, status, l.now, l.now))
		if !reflect.DeepEqual(l.state, kept) {
			t.Fatalf("the end of a run that was replaced changed %+v to %+v", kept, l.state)
		}
		return event
	case "refuse":
		if len(running) == 0 || !l.cron.Refusable || len(m.started) > maxEarlier {
			return "nothing"
		}
		fire := rapid.SampledFrom(running).Draw(t, "run")
		row := l.row(fire)
		if row.replaced {
			return "nothing"
		}
		if run := l.state.Started(fire); run == nil ||
			(run.Manual != row.Manual || run.Queued != (row.Decision == Queued)) {
			t.Fatalf("run %+v of %+v", run, row)
		}
		row.Decision, row.status, row.Attempt = SkippedConcurrency, Skipped, 0
		l.apply(l.cron.Refused(l.state, fire, l.now))
		m.refuse(fire)
		return event
	case "withdraw":
		waiting := m.waiting()
		if len(waiting) == 0 {
			return "nothing"
		}
		fire := rapid.SampledFrom(waiting).Draw(t, "fire").Time
		step, withdrawn := l.cron.RemoveQueued(l.state, fire, l.now)
		if !withdrawn {
			t.Fatalf("%s waits, but was not withdrawn", fire)
		}
		l.row(fire).status = Cancelled
		l.apply(step)
		m.withdraw(fire)
		if _, again := l.cron.RemoveQueued(l.state, fire, l.now); again {
			t.Fatalf("%s was withdrawn twice", fire)
		}
		return event
	case "pause":
		l.apply(l.cron.Pause(l.state, l.now))
		m.paused = true
		return event
	case "resume":
		skip := rapid.Bool().Draw(t, "skip_missed")
		waits := l.cron.Waiting(l.state, l.now, 1000)
		wasPaused, rows := l.state.Paused, len(l.rows)
		l.apply(l.cron.Resume(l.state, skip, l.now))
		m.resume(skip, times, l.now)
		if made := len(l.rows) - rows; wasPaused && m.maxFires == 0 && made != waits {
			t.Fatalf("resume decided %d fire times, Waiting said %d", made, waits)
		}
		return event
	case "trigger":
		step := l.cron.Trigger(l.state, overlap, l.now)
		m.startWaiting()
		m.fire(step.Fires[0].Time, overlap, true, l.now)
		l.apply(step)
		return fmt.Sprintf("%s with overlap %d", event, overlap)
	case "backfill":
		from := l.now.Truncate(time.Minute).Add(time.Duration(rapid.IntRange(-20, 5).Draw(t, "from")) * time.Minute)
		to := from.Add(time.Duration(rapid.IntRange(1, 10).Draw(t, "minutes")) * time.Minute)
		step, rest := l.cron.Backfill(l.state, from, to, func(fire time.Time) bool { return l.row(fire) != nil },
			overlap, l.now)
		if !rest.IsZero() {
			t.Fatalf("want a pause of ten minutes, got %s", rest)
		}
		m.startWaiting()
		// A backfill also decides the times before the cron was created.
		for at := from; at.Before(to) && !at.After(l.now); at = at.Add(time.Minute) {
			if l.row(at) == nil {
				m.fire(at, overlap, true, l.now)
			}
		}
		l.apply(step)
		return fmt.Sprintf("%s with overlap %d", event, overlap)
	case "start past":
		from := l.now.Truncate(time.Minute).Add(time.Duration(rapid.IntRange(-20, 5).Draw(t, "from")) * time.Minute)
		to := from.Add(time.Duration(rapid.IntRange(1, 10).Draw(t, "minutes")) * time.Minute)
		limit := rapid.IntRange(1, 4).Draw(t, "limit")
		m.startPast(from, to, l.now)
		for rest := from; !rest.IsZero(); {
			var step Step
			step, rest = l.cron.StartPast(l.state, rest, to, func(fire time.Time) bool { return l.row(fire) != nil },
				limit, l.now)
			if len(step.Fires) > limit || len(step.Fires) < limit && !rest.IsZero() {
				t.Fatalf("%d of %d runs started, rest %s", len(step.Fires), limit, rest)
			}
			l.apply(step)
			for _, fire := range step.Fires {
				l.row(fire.Time).independent = true
			}
		}
		return event
	default:
		step := l.cron.Tick(l.state, l.now)
		if !step.Next.IsZero() && !step.Next.After(l.now) {
			t.Fatalf("next is %s, but now is %s", step.Next, l.now)
		}
		l.apply(step)
		m.tick(times, l.now)
		return event
	}
}
