package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
)

// journalOf returns a function with these entries. The numbers of the events begin with 5.
func journalOf(entries ...string) *explain.Function {
	var events []explain.Event
	for n, entry := range entries {
		events = append(events, explain.Event{ID: int64(5 + n), Payload: []byte(entry)})
	}
	return explain.ReadJournal(events)
}

func TestReadJournal(t *testing.T) {
	const start = `{"k":"start","n":"order","v":{}}`
	for name, entries := range map[string][]string{
		"no event":                {},
		"events of another kind":  {`{"k":"other","n":"x"}`},
		"no JSON":                 {start, `pay`},
		"an event without a kind": {start, `{"n":"a"}`},
		"encrypted":               {"\x00\x01"},
		"an invalid repair":       {start, `{"k":"repair","n":"order","v":{"forget":"all"}}`},
	} {
		if f := journalOf(entries...); f != nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
	for _, tt := range []struct {
		name    string
		entries []string
		want    string
	}{
		{"steps", []string{`{"k":"step","n":"a","v":1,"u":true}`, `{"k":"step","n":"b","u":true}`,
			`{"k":"step","n":"c","u":true,"skipped":true}`, `{"k":"step","n":"d"}`, `{"k":"undo","n":"b"}`},
			"last step d, undos [a], 1 undone"},
		{"tries", []string{`{"k":"try","n":"a","e":{"reason":"busy","message":"no"}}`,
			`{"k":"try","n":"b","e":{"reason":"error","message":"down"}}`,
			`{"k":"try","n":"a","e":{"reason":"busy","message":"later"}}`, `{"k":"step","n":"b"}`},
			"last step b, retries [{a 2 busy: later}]"},
		{"children", []string{`{"k":"child","n":"a","v":{"namespace":"n","process_id":"p/a~1"}}`,
			`{"k":"child","n":"b","v":{"namespace":"n","process_id":"p/b~1","job":true}}`,
			`{"k":"child","n":"c","v":{"namespace":"n","process_id":"p/c~1"}}`, `{"k":"cancel","n":"c"}`,
			`{"k":"ended","n":"a","v":1}`},
			"children [{b n p/b~1 true false} {c n p/c~1 false true}]"},
		{"calls", []string{`{"k":"call","n":"pay"}`, `{"k":"call","n":"ask","t":7}`}, "last call ask"},
		{"a value", []string{`{"k":"end","n":"order","v":1}`}, "ended {  }"},
		{"an error", []string{`{"k":"step","n":"a","e":{"reason":"x","message":"y"}}`,
			`{"k":"step","n":"a#2","e":{"reason":"error","message":"no\n  money"}}`,
			`{"k":"fail","n":"order","e":{"reason":"error","message":"step a#2: no\n  money"}}`},
			"last step a#2, ended {step a#2: no money a#2 }"},
		{"an error of a job", []string{`{"k":"ended","n":"a","e":{"reason":"child_failed","message":"y"}}`,
			`{"k":"fail","n":"order","e":{"reason":"child_failed","message":"job a: y"}}`},
			"ended {child_failed: job a: y  a}"},
		{"an error of a run", []string{`{"k":"ended","n":"a","e":{"reason":"timeout","message":"y"}}`,
			`{"k":"fail","n":"order","e":{"reason":"timeout","message":"run a: y"}}`},
			"ended {timeout: run a: y  a}"},
		{"an end that another name has", []string{`{"k":"end","n":"other"}`}, ""},
		{"a repair", []string{`{"k":"step","n":"a","v":1,"u":true}`, `{"k":"step","n":"b","e":{"message":"y"}}`,
			`{"k":"fail","n":"order","e":{"message":"step b: y"}}`, `{"k":"undo","n":"a"}`,
			`{"k":"repair","n":"order","v":{"skip":["b"],"forget":[1,2,3,4]}}`,
			`{"k":"step","n":"b","skipped":true}`}, "last step b, repaired"},
		{"a long error", []string{`{"k":"fail","n":"order","e":{"message":"` + strings.Repeat("ä", 4000) + `"}}`},
			"ended {" + strings.Repeat("ä", 500) + "…  }"},
		{"an error without a message", []string{`{"k":"try","n":"a"}`}, "retries [{a 1 an error without a message}]"},
	} {
		f := journalOf(append([]string{start}, tt.entries...)...)
		if f == nil {
			t.Errorf("%s is not a journal", tt.name)
			continue
		}
		var got []string
		say := func(set bool, format string, values ...any) {
			if set {
				got = append(got, fmt.Sprintf(format, values...))
			}
		}
		say(f.Name != "order" || f.Partial, "%+v", f)
		say(f.LastStep != "", "last step %s", f.LastStep)
		say(len(f.Undos) > 0, "undos %v", f.Undos)
		say(f.Undone > 0, "%d undone", f.Undone)
		say(len(f.Retries) > 0, "retries %v", f.Retries)
		say(len(f.Children) > 0, "children %v", f.Children)
		say(f.LastCall != "", "last call %s", f.LastCall)
		say(f.Repaired, "repaired")
		if f.End != nil {
			say(true, "ended %v", *f.End)
		}
		if text := strings.Join(got, ", "); text != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, text, tt.want)
		}
	}
	part := explain.ReadJournal([]explain.Event{{5, []byte(start)}, {90, []byte(`{"k":"step","n":"z"}`)},
		{91, []byte(`{"k":"repair","n":"order","v":{"rewind":["y"],"forget":[80,85]}}`)}})
	if part == nil || !part.Partial || part.LastStep != "" || !part.Repaired {
		t.Errorf("%+v", part)
	}
}

func functionOf(entries ...string) func(*explain.State) {
	return func(s *explain.State) {
		s.Function = journalOf(append([]string{`{"k":"start","n":"order"}`}, entries...)...)
	}
}

func named(t explain.Task, name string) explain.Task {
	t.TimerName = name
	return t
}

const (
	child   = `{"k":"child","n":"bill","v":{"namespace":"bills","process_id":"o-1/bill~1"}}`
	step    = `{"k":"step","n":"hold","v":1,"u":true}`
	reserve = `{"k":"step","n":"reserve","v":1,"u":true}`
	failure = `{"k":"fail","n":"order","e":{"reason":"bank","message":"step charge: no money"}}`
)

// TestFunctions checks the explanations of situations that tests of an engine do not reach. The
// tests of an engine are in processor/durable.
func TestFunctions(t *testing.T) {
	try := `{"k":"try","n":"charge","e":{"reason":"bank","message":"no money."}}`
	for _, tt := range []waitCase{
		{"several waits", state(waiting(named(timer(2, 130), "late"), named(timer(3, 140), "retry:charge")),
			functionOf(child, try, try, `{"k":"cancel","n":"bill"}`)), process.WaitsForTime, at(130),
			[]string{`The function "order" waits for timer "late", due at 2026-11-20T12:02:10.000Z (in 30s); child ` +
				`"bill" (bills/o-1/bill~1), which was asked to end. Step "charge" failed 2 times: bank: no money. ` +
				`The next try is due at 2026-11-20T12:02:20.000Z (in 40s).`,
				`Timer "late" fires at 2026-11-20T12:02:10.000Z (in 30s) unless the function stops it.`,
				`Wait for that time. To call it, run progressor call shop o-1 --args '{"CALL":…}'. If it does not ` +
					`take this call now, the rejection names those that it takes.`}},
		{"the next try is first", state(waiting(named(timer(2, 190), "late"), named(timer(3, 140), "retry:charge")),
			functionOf(try, `{"k":"call","n":"pay"}`)), process.WaitsForTime, at(140),
			[]string{`Step "charge" failed once: bank: no money. The next try is due at 2026-11-20T12:02:20.000Z ` +
				`(in 40s). The function "order" also waits for timer "late"`,
				`Step "charge" is retried at 2026-11-20T12:02:20.000Z (in 40s).`}},
		{"many steps are retried", state(waiting(named(timer(3, 140), "retry:a")),
			functionOf(`{"k":"try","n":"a"}`, `{"k":"try","n":"b"}`, `{"k":"try","n":"c"}`, `{"k":"try","n":"d"}`,
				`{"k":"try","n":"e"}`, `{"k":"try","n":"f"}`, `{"k":"try","n":"g"}`)), process.WaitsForTime, at(140),
			[]string{`Step "e" failed once: an error without a message. 2 other steps will also be retried.`}},
		{"suspended", state(status(process.StatusSuspended, 50), waiting(held(named(timer(2, 130), "late"))),
			functionOf(child)), process.WaitsForOperator, time.Time{},
			[]string{`It waits for timer "late", due at 2026-11-20T12:02:10.000Z (in 30s); child "bill"`,
				"progressor resume shop o-1."}},
		{"many children", state(functionOf(child, strings.ReplaceAll(child, "bill", "b"),
			strings.ReplaceAll(child, "bill", "c"), strings.ReplaceAll(child, "bill", "d"),
			strings.ReplaceAll(child, "bill", "e"), strings.ReplaceAll(child, "bill", "f"))),
			process.WaitsForProcess, time.Time{},
			[]string{`child "e" (es/o-1/e~1); and 1 more.`, "It continues when one of these ends",
				"Wait for the end of o-1/bill~1. To see what it waits for, run progressor explain bills " +
					"'o-1/bill~1'."}},
		{"an undo waits for a slot", state(functionOf(step, reserve, failure),
			waiting(explain.Task{ID: 8, Type: process.TaskTimeout, WaitsFor: process.WaitsForPlace,
				Scheduled: at(90)})), process.WaitsForPlace, time.Time{},
			[]string{`The function "order" (task 8, TIMEOUT) waits for a slot`,
				`The function "order" undoes its steps: "reserve" is next, then "hold".`}},
		{"an undo is retried after a repair",
			state(functionOf(step, reserve, `{"k":"repair","n":"order","v":{}}`, failure),
				waiting(retried(timer(8, 130), 1, 30, "down", "undo of step reserve: down"))), process.WaitsForTime,
			at(130),
			[]string{`The function "order" (task 8, TIMEOUT) failed in attempt 1 of 5 (down: undo of step reserve: ` +
				`down). The function "order" undoes its steps: "reserve", "hold".`}},
		{"only a part of the journal", state(func(s *explain.State) {
			s.Function = explain.ReadJournal([]explain.Event{{5, []byte(`{"k":"start","n":"order"}`)},
				{90, []byte(try)}})
		}, waiting(named(timer(3, 140), "retry:charge"))), process.WaitsForTime, at(140),
			[]string{`Step "charge" failed at least 1 times: bank: no money.`}},
	} {
		e := explain.Explain(tt.state)
		text := fmt.Sprint(e.Detail, "\n", e.Next, "\n", e.Unblock)
		if e.WaitsFor != tt.waitsFor || tt.waitsFor == process.WaitsForTime && !e.NextTime.Equal(tt.nextTime) {
			t.Errorf("%s: waits for %q until %s, want %q, %s\n%s", tt.name, e.WaitsFor, e.NextTime, tt.waitsFor,
				tt.nextTime, text)
		}
		for _, want := range tt.texts {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", tt.name, want, text)
			}
		}
	}
}
