package explain_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
)

// The time in which a process was suspended belongs to the operator, also after the process was
// resumed.
func TestSpansOfASuspension(t *testing.T) {
	suspended := func(from, to float64) func(*explain.State) {
		return func(s *explain.State) {
			s.Suspended = append(s.Suspended, explain.Suspended{From: at(from), To: at(to), Reason: "audit"})
		}
	}
	resumed := status(process.StatusRunning, 60)
	for name, tt := range map[string]struct {
		change []func(*explain.State)
		want   []string
	}{
		"a timer waits": {[]func(*explain.State){suspended(39, 60), resumed, waiting(timer(2, 160))},
			[]string{"time 2 1-39", "operator 0 39-60", "time 2 60-"}},
		"twice": {[]func(*explain.State){suspended(10, 20), suspended(39, 60), resumed},
			[]string{"idle 0 1-10", "operator 0 10-20", "idle 0 20-39", "operator 0 39-60", "idle 0 60-"}},
		"suspended again": {
			[]func(*explain.State){suspended(10, 20), status(process.StatusSuspended, 80)},
			[]string{"idle 0 1-10", "operator 0 10-20", "idle 0 20-80", "operator 0 80-"}},
		"a call waited": {
			[]func(*explain.State){suspended(39, 60), resumed, ended(ran(4, process.TaskCall, 45, 61, 62))},
			[]string{"idle 0 1-39", "operator 0 39-45", "operator 4 45-60", "place 4 60-61", "processing 4 61-62",
				"idle 0 62-"}},
		"a call waited for a slot before": {
			[]func(*explain.State){suspended(39, 60), resumed, waiting(call(4, process.WaitsForPlace, 30))},
			[]string{"idle 0 1-30", "place 4 30-39", "operator 4 39-60", "place 4 60-"}},
		"it ended meanwhile": {
			[]func(*explain.State){suspended(39, 60), status(process.StatusCancelled, 60)},
			[]string{"idle 0 1-39", "operator 0 39-60"}},
	} {
		e := explain.Explain(state(tt.change...))
		want := append([]string{"processing 1 0-1"}, tt.want...)
		if got := spanTexts(e.Spans); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, s := range e.Spans {
			if s.What == "operator" && !s.To.IsZero() && s.Detail != "SUSPENDED: audit" {
				t.Errorf("%s: %+v", name, s)
			}
		}
	}
}
