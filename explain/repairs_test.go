package explain_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
)

// A timer that was due while the process was in ERROR waited for an operator, not for a slot.
func TestSpansOfARepair(t *testing.T) {
	broken := failed(ran(4, process.TaskCall, 50, 50, 52), "r")
	repaired := withoutAttempt(ran(5, process.TaskRepair, 70, 0, 70))
	before := []string{"processing 1 0-1", "idle 0 1-50", "processing 4 50-52"}
	for name, tt := range map[string]struct {
		change []func(*explain.State)
		want   []string
	}{
		"without the processor": {
			[]func(*explain.State){ended(broken, repaired, ran(6, process.TaskTimeout, 60, 71, 72))},
			[]string{"operator 0 52-60", "operator 6 60-70", "processing 5 70-70", "place 6 70-71",
				"processing 6 71-72", "idle 0 72-"},
		},
		"by the processor": {
			[]func(*explain.State){
				ended(broken, ran(5, process.TaskRepair, 70, 70, 71), ran(6, process.TaskTimeout, 60, 72, 73)),
			},
			[]string{"operator 0 52-60", "operator 6 60-70", "processing 5 70-71", "process 6 70-71", "place 6 71-72",
				"processing 6 72-73", "idle 0 73-"},
		},
		"at the second attempt": {
			[]func(*explain.State){ended(broken, failed(ran(5, process.TaskRepair, 55, 55, 56), "r"),
				ran(6, process.TaskRepair, 70, 70, 71), ran(7, process.TaskTimeout, 51, 71, 72))},
			[]string{"process 7 51-52", "operator 7 52-70", "processing 5 55-56", "processing 6 70-71",
				"process 7 70-71", "processing 7 71-72", "idle 0 72-"},
		},
		"and the timer waits": {
			[]func(*explain.State){ended(broken, repaired), waiting(explain.Task{
				ID: 6, Type: process.TaskTimeout, WaitsFor: process.WaitsForPlace, Scheduled: at(60),
			})},
			[]string{"operator 0 52-60", "operator 6 60-70", "processing 5 70-70", "place 6 70-"},
		},
		"and no timer": {
			[]func(*explain.State){ended(broken, repaired), status(process.StatusRunning, 70)},
			[]string{"operator 0 52-70", "processing 5 70-70", "idle 0 70-"},
		},
		"that was not stored": {
			[]func(*explain.State){
				status(process.StatusRunning, 70), ended(broken, ran(6, process.TaskTimeout, 60, 71, 72)),
			},
			[]string{"operator 0 52-60", "operator 6 60-70", "place 6 70-71", "processing 6 71-72", "idle 0 72-"},
		},
		"that was not stored, and the status changed before": {
			[]func(*explain.State){ended(broken, ran(6, process.TaskTimeout, 60, 71, 72))},
			[]string{"operator 0 52-60", "operator 6 60-71", "processing 6 71-72", "idle 0 72-"},
		},
		"and a second error": {
			[]func(*explain.State){ended(broken, repaired, failed(ran(6, process.TaskTimeout, 60, 71, 72), "r"),
				withoutAttempt(ran(7, process.TaskRepair, 80, 0, 80)), ran(8, process.TaskTimeout, 60, 80, 81))},
			[]string{"operator 0 52-60", "operator 6 60-70", "operator 8 60-70", "processing 5 70-70",
				"place 6 70-71", "process 8 70-72", "processing 6 71-72", "operator 8 72-80", "processing 7 80-80",
				"processing 8 80-81", "idle 0 81-"},
		},
	} {
		e := explain.Explain(state(tt.change...))
		if got, want := spanTexts(e.Spans), append(slices.Clone(before), tt.want...); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
