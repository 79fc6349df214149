package explain

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// MaxEvents and MaxEventBytes limit the events that an explanation reads from the end of a history.
// MaxEventBytes is approximate. An explanation also reads the first event.
const (
	MaxEvents     = 1000
	MaxEventBytes = 1 << 20
)

// Event is an event of the history of a process.
type Event struct {
	ID      int64
	Payload []byte
}

// Function contains what the journal of a durable function shows. docs/journal.md defines the
// entries. The journal does not show which calls are open, nor which steps run for the first time.
type Function struct {
	Name     string
	Partial  bool     // older entries were not read
	LastStep string   // the step that ended last; "" if there is none
	Retries  []Retry  // steps that have failed and will be retried, in the order of their names
	Children []Child  // children, jobs and runs that have not ended, oldest first
	LastCall string   // the name of the newest call; "" if there is none
	End      *End     // nil if the function has not ended
	Undos    []string // completed steps with an undo that was not recorded, newest first
	Undone   int      // number of undos
	Repaired bool     // it was repaired by step, so the order of Undos may be different

	requests map[int64]string // the names of the calls whose tasks wait for a reply
}

// Retry is a step that has failed, and has tries left.
type Retry struct {
	Step   string
	Failed int // number of failed tries
	Error  string
}

// Child is a process, a job or a run that a function has started.
type Child struct {
	Name      string
	Namespace string
	ProcessID string
	Job       bool
	Cancelled bool // it was asked to end
}

// End describes how a function ended.
type End struct {
	Error string // "" if it returned a value
	Step  string // the step that failed with this error; "" if none did
	Child string // the child or job that failed with this error; "" if none did
}

// entry is the payload of an event of a function.
type entry struct {
	Kind    string          `json:"k"`
	Name    string          `json:"n"`
	Value   json.RawMessage `json:"v"`
	Error   *entryError     `json:"e"`
	Undo    bool            `json:"u"`
	Task    int64           `json:"t"`
	Skipped bool            `json:"skipped"`
}

type entryError struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// text returns the reason and the message, on one line. It omits the reason "error", which says
// nothing.
func (e *entryError) text() string {
	if e == nil {
		return noError
	}
	text := e.Message
	if e.Reason != "" && e.Reason != "error" {
		text = strings.TrimSuffix(e.Reason+": "+e.Message, ": ")
	}
	return cmp.Or(cut(strings.Join(strings.Fields(text), " ")), noError)
}

const noError = "an error without a message"

// maxErrorText is the maximum length of an error in an explanation, in bytes.
const maxErrorText = 1000

func cut(s string) string {
	if len(s) <= maxErrorText {
		return s
	}
	return strings.ToValidUTF8(s[:maxErrorText], "") + "…"
}

func parseEntry(payload []byte) (e entry, ok bool) {
	err := json.Unmarshal(payload, &e)
	return e, err == nil && e.Kind != "" && e.Name != ""
}

// IsFunction reports whether the first event of a history is that of a durable function.
func IsFunction(first []byte) bool {
	e, ok := parseEntry(first)
	return ok && e.Kind == "start"
}

// ReadJournal returns what the journal of a function shows. events are the first event of the
// history and its newest ones, oldest first. It returns nil if they are not a journal.
func ReadJournal(events []Event) *Function {
	if len(events) == 0 || !IsFunction(events[0].Payload) {
		return nil
	}
	entries, forgotten := make([]entry, len(events)), map[int64]bool{}
	for n, event := range events {
		e, ok := parseEntry(event.Payload)
		if !ok {
			return nil
		}
		if entries[n] = e; e.Kind == "repair" {
			var record struct{ Forget []int64 }
			if json.Unmarshal(e.Value, &record) != nil {
				return nil
			}
			for _, index := range record.Forget {
				forgotten[events[0].ID+index] = true
			}
		}
	}
	r := journalReader{f: &Function{
		Name: entries[0].Name, Partial: events[len(events)-1].ID-events[0].ID >= int64(len(events)),
		requests: map[int64]string{},
	}, first: map[[2]string]*entry{}, retries: map[string]Retry{}}
	for n := range entries {
		if !forgotten[events[n].ID] {
			r.read(&entries[n])
		}
	}
	return r.function()
}

// journalReader collects the first entry of each kind and name, and the retries of steps.
type journalReader struct {
	f       *Function
	first   map[[2]string]*entry // by kind and name
	entries []*entry             // those in first, oldest first
	retries map[string]Retry     // by step
}

func (r *journalReader) read(e *entry) {
	switch e.Kind {
	case "call":
		r.f.LastCall = e.Name
		if e.Task != 0 {
			r.f.requests[e.Task] = e.Name
		}
		return
	case "reply":
		delete(r.f.requests, e.Task)
		return
	case "repair":
		r.f.Repaired = true
		return
	case "try":
		r.retries[e.Name] = Retry{e.Name, r.retries[e.Name].Failed + 1, e.Error.text()}
		return
	}
	key := [2]string{e.Kind, e.Name}
	if r.first[key] == nil {
		r.first[key] = e
		r.entries = append(r.entries, e)
	}
}

func (r *journalReader) has(kind, name string) bool { return r.first[[2]string{kind, name}] != nil }

func (r *journalReader) function() *Function {
	f := r.f
	for _, e := range r.entries {
		switch e.Kind {
		case "step":
			f.LastStep = e.Name
			if e.Undo && e.Error == nil && !e.Skipped && !r.has("undo", e.Name) {
				f.Undos = append(f.Undos, e.Name)
			}
		case "undo":
			f.Undone++
		case "child":
			if !r.has("ended", e.Name) {
				f.Children = append(f.Children, r.child(e))
			}
		}
	}
	slices.Reverse(f.Undos)
	for _, step := range slices.Sorted(maps.Keys(r.retries)) {
		if !r.has("step", step) {
			f.Retries = append(f.Retries, r.retries[step])
		}
	}
	if failed := r.first[[2]string{"fail", f.Name}]; failed != nil && failed.Error != nil {
		f.End = r.end(failed.Error)
	} else if r.has("end", f.Name) {
		f.End = &End{}
	}
	return f
}

func (r *journalReader) child(e *entry) Child {
	var key struct {
		Namespace string `json:"namespace"`
		ProcessID string `json:"process_id"`
		Job       bool   `json:"job"`
	}
	_ = json.Unmarshal(e.Value, &key) // without it, the child has only a name
	return Child{e.Name, key.Namespace, key.ProcessID, key.Job, r.has("cancel", e.Name)}
}

// end finds the step or the child whose error the function has returned.
func (r *journalReader) end(failed *entryError) *End {
	end := &End{Error: failed.text()}
	for _, e := range r.entries {
		switch {
		case e.Error == nil:
		case e.Kind == "step" && strings.Contains(failed.Message, "step "+e.Name+": "):
			end.Step = e.Name
		case e.Kind == "ended" && (strings.Contains(failed.Message, "child "+e.Name+": ") ||
			strings.Contains(failed.Message, "job "+e.Name+": ") ||
			strings.Contains(failed.Message, "run "+e.Name+": ")):
			end.Child = e.Name
		}
	}
	return end
}
