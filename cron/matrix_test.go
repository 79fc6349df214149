package cron

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/decisions.txt from the model of the history; review the result")

// situation is the situation at a fire time. Times are seconds from 10:00:00. Runs are in the order
// of their starts.
type situation struct {
	name   string
	policy Policy // settings of the situation; the matrix sets the four policies
	runs   []past
	queue  []int // waiting fire times
	now    int   // the fire times since second 100 are not decided
}

type past struct {
	fire, attempt int
	status        Status
	ended         int
	spent         bool
}

var backoff10 = Backoff{Initial: 10 * time.Second, Max: time.Minute}

var situations = []situation{
	{name: "no run yet", now: 101},
	{name: "the previous run succeeded", runs: []past{{90, 1, Success, 95, false}}, now: 101},
	{name: "the previous run is running, one slot", runs: []past{{90, 1, Running, 0, false}}, now: 101},
	{name: "the previous run is running, two slots", policy: Policy{MaxConcurrency: 2},
		runs: []past{{90, 1, Running, 0, false}}, now: 101},
	{name: "the previous run is running and so is an older one, two slots", policy: Policy{MaxConcurrency: 2},
		runs: []past{{80, 1, Running, 0, false}, {90, 1, Running, 0, false}}, now: 101},
	{name: "the previous run is running and so is an older one, one slot",
		runs: []past{{80, 1, Running, 0, false}, {90, 1, Running, 0, false}}, now: 101},
	{name: "the previous run succeeded, two older ones are running, two slots", policy: Policy{MaxConcurrency: 2},
		runs: []past{{70, 1, Running, 0, false}, {80, 1, Running, 0, false}, {90, 1, Success, 95, false}}, now: 101},
	{name: "the previous run is running, max_overlap 1", policy: Policy{MaxOverlap: 1},
		runs: []past{{90, 1, Running, 0, false}}, now: 101},
	{name: "the previous run is running, a fire waits, queue_limit 1", policy: Policy{QueueLimit: 1},
		runs: []past{{80, 1, Running, 0, false}}, queue: []int{90}, now: 101},
	{name: "the previous run failed in attempt 2 just now, back-off 20 s", policy: Policy{RetryBackoff: backoff10},
		runs: []past{{90, 2, Failed, 99, false}}, now: 101},
	{name: "the previous run timed out in attempt 2 a minute ago, back-off 20 s",
		policy: Policy{RetryBackoff: backoff10}, runs: []past{{30, 2, Timeout, 41, false}}, now: 101},
	{name: "the previous run was cancelled in attempt 3 a minute ago, max_attempts 3",
		policy: Policy{RetryBackoff: backoff10, MaxAttempts: 3},
		runs:   []past{{30, 3, Cancelled, 40, false}}, now: 101},
	{name: "the previous run failed and has skipped a fire", policy: Policy{RetryBackoff: backoff10},
		runs: []past{{30, 1, Failed, 40, true}}, now: 101},
	{name: "the previous run failed a minute ago, an older one is running, one slot",
		policy: Policy{RetryBackoff: backoff10},
		runs:   []past{{30, 1, Running, 0, false}, {35, 1, Failed, 40, false}}, now: 101},
	{name: "the second failure in a row just now, pause_after_failures 3",
		policy: Policy{PauseAfterFailures: 3, RetryBackoff: backoff10},
		runs:   []past{{30, 1, Failed, 35, false}, {90, 1, Failed, 99, false}}, now: 101},
	{name: "the second failure in a row just now, pause_after_failures 2",
		policy: Policy{PauseAfterFailures: 2, RetryBackoff: backoff10},
		runs:   []past{{30, 1, Failed, 35, false}, {90, 1, Failed, 99, false}}, now: 101},
	{name: "the second failure in a row a minute ago, pause_after_failures 2",
		policy: Policy{PauseAfterFailures: 2, RetryBackoff: backoff10},
		runs:   []past{{30, 1, Failed, 35, false}, {35, 1, Failed, 41, false}}, now: 101},
	{name: "three fire times are due, 7 s late, and no run yet", now: 110},
	{name: "three fire times are due, the newest now, and the previous run is running",
		runs: []past{{90, 1, Running, 0, false}}, now: 103},
	{name: "three fire times are due, the newest now, and the previous run failed a minute ago",
		policy: Policy{RetryBackoff: backoff10},
		runs:   []past{{30, 1, Failed, 40, false}}, now: 103},
}

// paused reports whether the cron has paused itself.
func (s situation) paused(policy Policy) bool {
	failures := 0
	for _, run := range s.runs {
		if run.status == Failed {
			failures++
		}
	}
	return policy.Failure != FailureHalfOpen && policy.PauseAfterFailures > 0 &&
		failures >= int(policy.PauseAfterFailures)
}

func (s situation) state(policy Policy) State {
	state := NewState(second(100))
	state.Paused = s.paused(policy)
	for _, run := range s.runs {
		if run.status == Running {
			state.Running = append(state.Running, second(run.fire))
		} else if run.status != Success {
			state.Failures++
		}
		state.Previous = &Run{Fire: second(run.fire), Attempt: int32(run.attempt), Status: run.status, Spent: run.spent}
		if run.ended > 0 {
			state.Previous.Ended = second(run.ended)
			state.Trial = second(run.ended)
		}
	}
	for _, fire := range s.queue {
		state.Queue = append(state.Queue, Wait{Fire: second(fire)})
	}
	return state
}

func (s situation) model(policy Policy) *model {
	m := &model{policy: policy, paused: s.paused(policy)}
	for _, run := range s.runs {
		row := &modelRow{Fire: Fire{Time: second(run.fire), Decision: Fired, Attempt: int32(run.attempt)},
			status: run.status, spent: run.spent}
		m.rows, m.started = append(m.rows, row), append(m.started, row)
		if run.ended > 0 {
			row.end, m.opened = second(run.ended), second(run.ended)
			m.ended = append(m.ended, row)
		}
	}
	for _, fire := range s.queue {
		m.rows = append(m.rows, &modelRow{Fire: Fire{Time: second(fire), Decision: Queued}, status: Scheduled})
	}
	return m
}

// cell formats a row of the ledger in a few words. Words in capitals are decisions of the API.
func cell(decision Decision, attempt int32, cancelled bool) string {
	words := strings.ToUpper(strings.TrimPrefix(decision.String(), "skipped_"))
	if decision == Fired {
		words = fmt.Sprint("attempt ", attempt)
	}
	if cancelled {
		words += " replaces it"
	}
	return words
}

// decided returns what the decider and the model decide in a situation.
func (s situation) decided(t *testing.T, schedule *Schedule, policy Policy) (got, want string) {
	t.Helper()
	step := Cron{Key: "shop/report", Schedule: schedule, Policy: policy}.Tick(s.state(policy), second(s.now))
	m := s.model(policy)
	var times []time.Time
	for fire := range schedule.Between(second(101), second(s.now+1)) {
		times = append(times, fire)
	}
	ran := len(m.rows)
	m.tick(times, second(s.now))
	var left, right []string
	for i, fire := range step.Fires {
		// A cancel is shown with the run that replaces the cancelled run.
		cancels := fire.Decision == Fired && len(step.Cancels) > 0 &&
			slices.ContainsFunc(step.Cancels, func(c time.Time) bool {
				return i > 0 && c.Equal(step.Fires[i-1].Time) || c.Before(second(101)) && firstFired(step.Fires) == i
			})
		left = append(left, cell(fire.Decision, fire.Attempt, cancels))
	}
	for i := ran; i < len(m.rows); i++ {
		row, place := m.rows[i], slices.Index(m.started, m.rows[i])
		right = append(right,
			cell(row.Decision, row.Attempt, row.Decision == Fired && place > 0 && m.started[place-1].replaced))
	}
	if m.paused && len(left)+len(right) == 0 {
		return "(paused)", "(paused)"
	}
	if len(left) != s.now-100 && len(left) != 3 {
		t.Errorf("%s: %d rows", s.name, len(left))
	}
	return strings.Join(left, ", "), strings.Join(right, ", ")
}

func firstFired(fires []Fire) int {
	return slices.IndexFunc(fires, func(fire Fire) bool { return fire.Decision == Fired })
}

var (
	overlapNames = []string{"", "ALLOW", "SKIP", "CANCEL_PREV", "PARALLEL", "BUFFER_ONE"}
	failureNames = []string{"", "RUN_NEW", "SKIP", "RETRY", "BACKOFF", "HALF_OPEN"}
	queueNames   = []string{"", "SKIP", "QUEUE"}
	misfireNames = []string{"", "FIRE_NOW", "SKIP", "CATCH_UP_LIMITED"}
)

// TestMatrix tests every overlap × failure × concurrency × misfire policy × situation: 3,000
// decisions. The decider and the model of the history agree on each of them. Both also agree with
// testdata/decisions.txt, which was reviewed rule by rule.
func TestMatrix(t *testing.T) {
	schedule := compile(t, Spec{Expressions: []string{"* * * * * *"}, Start: second(101), End: second(103)})
	kept, err := os.ReadFile("testdata/decisions.txt")
	if err != nil && !*update {
		t.Fatal(err)
	}
	rules, _, _ := strings.Cut(string(kept), "== ")
	text := strings.Builder{}
	text.WriteString(rules)
	for _, s := range situations {
		for misfire := MisfireFireNow; misfire <= MisfireCatchUpLimited; misfire++ {
			table := s.table(t, schedule, misfire)
			name := s.name
			if s.now > 101 {
				name += ", misfire " + misfireNames[misfire]
			} else if misfire > MisfireFireNow {
				// For a single fire that is not late, the misfire policy does not matter.
				if !strings.HasSuffix(text.String(), table) {
					t.Errorf("%s: misfire policy %s decides a fire that is not late", s.name, misfireNames[misfire])
				}
				continue
			}
			fmt.Fprintf(&text, "== %s\n\n%s", name, table)
		}
	}
	if *update {
		if err := os.WriteFile("testdata/decisions.txt", []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, want := strings.Split(text.String(), "\n"), strings.Split(string(kept), "\n")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("testdata/decisions.txt:%d differs from the decision (%d and %d lines)", i+1, len(want), len(got))
		}
	}
}

// table formats the decisions with a line for each overlap and concurrency policy, and a column for
// each failure policy. If all columns are equal, there is only one.
func (s situation) table(t *testing.T, schedule *Schedule, misfire MisfirePolicy) string {
	rows := [][]string{append([]string{"overlap", "full"}, failureNames[1:]...)}
	for overlap := OverlapActionAllow; overlap <= OverlapActionBufferOne; overlap++ {
		for concurrency := ConcurrencySkip; concurrency <= ConcurrencyQueue; concurrency++ {
			cells := []string{overlapNames[overlap], queueNames[concurrency]}
			for failure := FailureRunNew; failure <= FailureHalfOpen; failure++ {
				policy := s.policy
				policy.Overlap, policy.Concurrency, policy.Failure, policy.Misfire = overlap, concurrency, failure,
					misfire
				policy.CatchUpLimit, policy.MisfireThreshold = 2, 5*time.Second
				got, want := s.decided(t, schedule, policy)
				if got != want {
					t.Errorf("%s: overlap %s, failure %s, concurrency %s, misfire %s:\ngot  %s\nwant %s", s.name,
						overlapNames[overlap], failureNames[failure], queueNames[concurrency], misfireNames[misfire],
						got, want)
				}
				cells = append(cells, want)
			}
			if len(slices.Compact(slices.Clone(cells[2:]))) == 1 {
				cells = append(cells[:3], "←", "←", "←", "←")
			}
			rows = append(rows, cells)
		}
	}
	text := strings.Builder{}
	for _, row := range rows {
		line := fmt.Sprintf("%-12s %-6s", row[0], row[1])
		for i, cell := range row[2:] {
			width := 0
			for _, other := range rows {
				width = max(width, len([]rune(other[i+2])))
			}
			line += fmt.Sprintf("| %-*s ", width, cell)
		}
		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return text.String() + "\n"
}
