package durable

import (
	"os"
	"strings"
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// docs/functions.md has all kinds of entries.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/functions.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{kindStart, kindStep, kindTry, kindValue, kindTimer, kindFired, kindStopped, kindCall,
		kindFirst, kindEnd, kindFail, kindUndo} {
		if !strings.Contains(string(page), "\n| `"+kind+"` | ") {
			t.Errorf("docs/functions.md does not have the kind %s", kind)
		}
	}
}

// A journal must be complete, begin with the start, and contain entries only.
func TestReadJournal(t *testing.T) {
	for name, test := range map[string]struct {
		first, last int64
		events      []string
		want        string
	}{
		"new":       {0, 0, nil, ""},
		"empty":     {1, 0, nil, ""},
		"complete":  {3, 4, []string{`{"k":"start","n":"f","x":1}`, `{"k":"value","n":"a"}`}, ""},
		"a range":   {1, 2, []string{`{"k":"start","n":"f"}`}, "the task has 1 of 2 events"},
		"restarted": {2, 2, []string{`{"k":"step","n":"a"}`}, "does not begin with the start"},
		"foreign":   {1, 1, []string{`{"paid":1}`}, "event 1 is not an entry"},
		"no error":  {1, 2, []string{`{"k":"start","n":"f"}`, `{"k":"fail","n":"f"}`}, "event 2 is not an entry"},
		"no JSON":   {1, 1, []string{`paid`}, "event 1 is not an entry"},
	} {
		p := &progressorv1.Process{FirstEventId: test.first, LastEventId: test.last}
		for i, payload := range test.events {
			p.History = append(p.History, &progressorv1.Event{EventId: test.first + int64(i), Payload: []byte(payload)})
		}
		j, err := readJournal(p)
		switch {
		case test.want == "" && (err != nil || len(j.unsaved()) != 0):
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
