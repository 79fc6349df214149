package durable

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// docs/journal.md describes all kinds of entries.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/journal.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{kindStart, kindStep, kindTry, kindValue, kindTimer, kindFired, kindStopped, kindCall,
		kindFirst, kindEnd, kindFail, kindUndo, kindChild, kindEnded, kindCancel, kindRepair} {
		if !strings.Contains(string(page), "\n| `"+kind+"` | ") {
			t.Errorf("docs/journal.md does not contain the kind %s", kind)
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
		"truncated": {1, 2, []string{`{"k":"start","n":"f"}`}, "the task has 1 of 2 events"},
		"restarted": {2, 2, []string{`{"k":"step","n":"a"}`}, "does not begin with the start"},
		"foreign":   {1, 1, []string{`{"paid":1}`}, "event 1 is not an entry"},
		"no error":  {1, 2, []string{`{"k":"start","n":"f"}`, `{"k":"fail","n":"f"}`}, "event 2 is not an entry"},
		"a repair that forgets itself": {1, 2,
			[]string{`{"k":"start","n":"f"}`, `{"k":"repair","n":"f","v":{"forget":[1]}}`}, "event 2 is not an entry"},
		"a repair that forgets the start": {1, 2,
			[]string{`{"k":"start","n":"f"}`, `{"k":"repair","n":"f","v":{"forget":[0]}}`}, "event 2 is not an entry"},
		"no JSON": {1, 1, []string{`paid`}, "event 1 is not an entry"},
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

// parseEntry decodes an entry in the same way as encoding/json.
func TestParseEntry(t *testing.T) {
	for _, payload := range []string{
		`{"k":"step","n":"a","v":"x"}`, `{"k":"step","n":"a#2","v":{"a":[1,{}]}}`, `{"k":"fired","n":"a"}`,
		`{"k":"step","n":"a","v":1,"u":true}`, `{"k":"step","n":"a","v":{},"u":true,"versions":{"a":1}}`,
		`{"k":"step","n":"a","e":{"reason":"r","message":"m","rejected":true}}`, `{"k":"step","n":"a","v":null}`,
		`{"n":"a","k":"step"}`, `{"k":"step"}`, `{"k":"step","n":"a","x":1}`, `{"k":"step","n":"\u00e4\"b","v":1}`,
		`{"k":"step","n":"ä","v":"<"}`, `{"k":"step","n":"a","v":1}`, `{"k":"step","n":"a","v":1,"v":2}`,
		`{"k":"step","n":"a","v":}`, `{"k":"step","n":"a","v":1`, `{"k":"step","n":"a"`, `{"k":"step","n":"a`,
		`{"k":"step","n":"a"]`, `{"k":"step","n":"a","v":1}}`, `{"k":"step","n":"a","v":1} `, ``, `{`, `7`,
	} {
		var want entry
		wantErr := json.Unmarshal([]byte(payload), &want)
		got, err := parseEntry([]byte(payload))
		if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v %v, want %+v %v", payload, got, err, want, wantErr)
		}
	}
}
