package durable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The kinds of journal entries.
const (
	kindStart   = "start"   // the function's name, its input and versions; always the first entry
	kindStep    = "step"    // a step ended with a value or an error
	kindTry     = "try"     // a step failed and is retried
	kindValue   = "value"   // Now, UUID, Rand
	kindTimer   = "timer"   // a timer was set; the value is its duration in seconds
	kindFired   = "fired"   // a timer fired
	kindStopped = "stopped" // a timer was stopped
	kindCall    = "call"    // a call was accepted; the value is its args
	kindReply   = "reply"   // the function has answered a call with a response or an error
	kindFirst   = "first"   // First has chosen
	kindEnd     = "end"     // the function returned a value
	kindFail    = "fail"    // the function returned an error
	kindUndo    = "undo"    // a step was undone
	kindChild   = "child"   // a child, a job or a run was started; the value is its childKey
	kindEnded   = "ended"   // a child ended with a response or an error
	kindCancel  = "cancel"  // a child was asked to end
	kindRepair  = "repair"  // an operator has repaired the function by step
)

// entry is an entry of the journal: the payload of one event.
type entry struct {
	Kind     string          `json:"k"`
	Name     string          `json:"n"`
	Value    json.RawMessage `json:"v,omitempty"`
	Error    *StepError      `json:"e,omitempty"`
	Undo     bool            `json:"u,omitempty"`       // a step has an undo function
	Task     int64           `json:"t,omitempty"`       // the task of a call that waits for a reply
	Skipped  bool            `json:"skipped,omitempty"` // an operator has skipped the step
	Versions Versions        `json:"versions,omitempty"`
}

// isValid reports whether an entry may have this index in the journal.
func (e *entry) isValid(index int) bool {
	switch e.Kind {
	case "":
		return false
	case kindFail:
		return e.Error != nil
	case kindReply:
		return e.Task > 0
	case kindRepair:
		forget, err := e.forgets()
		return err == nil && !slices.ContainsFunc(forget, func(at int) bool { return at < 1 || at >= index })
	default:
		return true
	}
}

// forgets returns the indexes of the entries that do not count after a repair.
func (e *entry) forgets() ([]int, error) {
	var record repairRecord
	err := json.Unmarshal(e.Value, &record)
	return record.Forget, err
}

// encode returns the payload of an event.
func (e *entry) encode() []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // escaped args could be too large
	_ = encoder.Encode(e)        // all parts are valid JSON
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}

// parseEntry decodes the payload of an event.
func parseEntry(payload []byte) (entry, error) {
	if e, ok := parseSimple(payload); ok {
		return e, nil
	}
	var e entry
	err := json.Unmarshal(payload, &e)
	return e, err
}

// parseSimple decodes an entry that has only a kind, a name and a value, as addEvents has encoded
// it. Most entries are like this, and json.Unmarshal takes several times as long.
func parseSimple(payload []byte) (e entry, ok bool) {
	var rest []byte
	if e.Kind, rest, ok = cutString(payload, `{"k":"`); !ok {
		return e, false
	}
	if e.Name, rest, ok = cutString(rest, `,"n":"`); !ok {
		return e, false
	}
	if len(rest) == 1 {
		return e, rest[0] == '}'
	}
	value, hasValue := bytes.CutPrefix(rest, []byte(`,"v":`))
	value, complete := bytes.CutSuffix(value, []byte(`}`))
	e.Value = value
	return e, hasValue && complete && json.Valid(value) // more fields after the value make it invalid
}

// cutString removes the prefix, which ends with a quote. It returns the text before the next quote
// as s, and the text after that quote as rest. ok is false if the prefix or the next quote is
// missing, or if s has escapes or is not printable ASCII.
func cutString(text []byte, prefix string) (s string, rest []byte, ok bool) {
	text, ok = bytes.CutPrefix(text, []byte(prefix))
	end := bytes.IndexByte(text, '"')
	if !ok || end < 0 {
		return "", nil, false
	}
	for _, c := range text[:end] {
		if c < ' ' || c > '~' || c == '\\' {
			return "", nil, false
		}
	}
	return string(text[:end]), text[end+1:], true
}

// journal contains the entries of a process, in order. Entries from index saved on are new.
//
// Only the goroutine that may run adds entries. A goroutine of another process that misuses a Ctx
// may look up entries at the same time, and mu prevents a crash of the program.
type journal struct {
	mu      sync.Mutex // guards changes of entries, index and calls, and the lookups of a Ctx
	entries []entry    // those that a repair has forgotten are empty
	saved   int
	bytes   int   // approximate size of the new entries
	texts   int   // size of the values and errors of all entries, as JSON or less
	first   int64 // the number of the first event
	origin  int64 // the number of the task that stored it, or that made the last repair by step
	index   map[entryKey]int
	tries   map[string]int
	calls   map[string][]int
	replies map[int64]bool // the tasks of the calls that the function has answered
	reruns  map[string]int // how often a completed step was forgotten
	failed  map[string]int // how often a failed step was forgotten

	// repaired is true if the function was repaired by step. Then the entries of steps that the
	// repair has ended, or that ran again, can come after the entries of later operations.
	repaired bool
}

// readJournal decodes the events of a process.
func readJournal(p *progressorv1.Process) (*journal, error) {
	j := newJournal(max(1, p.GetFirstEventId())) // older engines send 0 with an INIT
	events := p.GetHistory()
	if want := p.GetLastEventId() - j.first + 1; int64(len(events)) != want {
		return nil, fmt.Errorf("the task has %d of %d events: durable functions need the namespace's "+
			"history_mode FULL, and calls without a range", len(events), want)
	}
	if len(events) > 0 {
		j.origin = events[0].GetTaskId()
	}
	j.entries, j.index = make([]entry, 0, len(events)+1), make(map[entryKey]int, len(events)+1)
	for _, event := range events {
		e, err := parseEntry(event.GetPayload())
		if err != nil || !e.isValid(len(j.entries)) {
			return nil, fmt.Errorf("event %d is not an entry of a journal", event.GetEventId())
		}
		if e.Kind == kindRepair {
			j.origin = event.GetTaskId()
		}
		if event.GetTaskId() == 0 && e.Kind == kindCall { // imported: the caller waited for another process
			e.Task = 0
		}
		j.add(e)
	}
	if len(events) > 0 && j.entries[0].Kind != kindStart {
		return nil, errors.New("the journal does not begin with the start of the function: " +
			"the history was restarted by someone else")
	}
	j.saved, j.bytes = len(j.entries), 0
	return j, nil
}

type entryKey struct{ kind, name string }

func newJournal(first int64) *journal {
	return &journal{first: first, index: map[entryKey]int{}, tries: map[string]int{}, calls: map[string][]int{},
		replies: map[int64]bool{}, reruns: map[string]int{}, failed: map[string]int{}}
}

// add appends an entry.
func (j *journal) add(e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := len(j.entries)
	j.entries = append(j.entries, e)
	j.bytes += len(e.Value) + 100
	j.texts += len(e.Value)
	if e.Error != nil {
		j.bytes += len(e.Error.Reason) + len(e.Error.Message)
		j.texts += maxEscape * (len(e.Error.Reason) + len(e.Error.Message))
	}
	if e.Kind == kindRepair {
		j.forget(&e)
	}
	j.register(at)
}

// register makes an entry known by its name.
func (j *journal) register(at int) {
	switch e := &j.entries[at]; e.Kind {
	case kindTry:
		j.tries[e.Name]++
	case kindCall:
		j.calls[e.Name] = append(j.calls[e.Name], at)
	case kindReply:
		j.replies[e.Task] = true
	default:
		key := entryKey{e.Kind, e.Name}
		if _, ok := j.index[key]; !ok {
			j.index[key] = at
		}
	}
}

// forget empties the entries that a repair forgets. The others keep their places, because First
// compares them.
func (j *journal) forget(repair *entry) {
	j.repaired = true
	forget, _ := repair.forgets() // isValid has checked it
	for _, at := range forget {
		switch e := &j.entries[at]; {
		case e.Kind != kindStep || e.Skipped:
		case e.Error == nil:
			j.reruns[e.Name]++
		default:
			j.failed[e.Name]++
		}
		j.entries[at] = entry{}
	}
	clear(j.index)
	clear(j.tries)
	clear(j.calls)
	clear(j.replies)
	for at := range j.entries[:len(j.entries)-1] {
		if j.entries[at].Kind != "" {
			j.register(at)
		}
	}
}

// maxEscape is the maximum number of bytes that JSON uses for one byte of a string, as in \u0000.
const maxEscape = 6

// size returns the maximum size of the entries as JSON. An entry has up to 120 bytes besides its
// name, value and error.
func (j *journal) size() int { return j.texts + (maxFullName+120)*len(j.entries) }

// snapshot returns a copy of the entries.
func (j *journal) snapshot() []entry { return slices.Clone(j.entries) }

// position returns the index of an entry. The kind must not be a try, a call or a reply.
func (j *journal) position(kind, name string) (int, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at, ok := j.index[entryKey{kind, name}]
	return at, ok
}

func (j *journal) find(kind, name string) (*entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if at, ok := j.index[entryKey{kind, name}]; ok {
		return &j.entries[at], true
	}
	return nil, false
}

// start returns the first entry.
func (j *journal) start() *entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return &j.entries[0]
}

// call returns the index of a call, and its entry. The first call with a name has the number 0.
func (j *journal) call(name string, number int) (at int, e *entry, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := j.calls[name]
	if number >= len(all) {
		return 0, nil, false
	}
	return all[number], &j.entries[all[number]], true
}

func (j *journal) has(kind, name string) bool {
	_, ok := j.position(kind, name)
	return ok
}

// ended returns the entry for the end of the function, or nil.
func (j *journal) ended() *entry {
	for _, kind := range []string{kindEnd, kindFail} {
		if e, ok := j.find(kind, j.start().Name); ok {
			return e
		}
	}
	return nil
}

// unsaved returns the new entries.
func (j *journal) unsaved() []entry { return j.entries[j.saved:] }

// isFull reports whether a result should store the new entries before more are added.
func (j *journal) isFull() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.entries)-j.saved >= maxNewEntries || j.bytes >= maxNewBytes
}

// pendingTimers returns the names of the timers of After that may be set.
func (j *journal) pendingTimers() []string {
	j.mu.Lock()
	entries := j.entries
	j.mu.Unlock()
	var names []string
	for _, e := range entries {
		if e.Kind == kindTimer && !j.has(kindFired, e.Name) && !j.has(kindStopped, e.Name) {
			names = append(names, e.Name)
		}
	}
	return names
}

// pendingRetries returns the names of the timers of steps that may wait for their next try.
func (j *journal) pendingRetries() []string {
	var names []string
	for name := range j.tries {
		if !j.has(kindStep, name) {
			names = append(names, retryTimer+name)
		}
	}
	return names
}

// encode returns v as JSON, or an error that says what is wrong.
func encode(v any) (json.RawMessage, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("cannot be encoded as JSON: %w", err)
	}
	if len(text) > maxValueBytes {
		return nil, fmt.Errorf("has %d bytes as JSON, at most %d are allowed", len(text), maxValueBytes)
	}
	return text, nil
}
