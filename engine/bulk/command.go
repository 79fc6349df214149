package bulk

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
)

// command is the request of a bulk: the metadata of its process.
type command struct {
	Kind         string                `json:"kind,omitempty"` // "" for processes
	Verb         progressorv1.BulkVerb `json:"-"`
	VerbName     string                `json:"verb"`
	Filter       string                `json:"filter"`
	Rate         float64               `json:"rate"` // never 0
	Reason       string                `json:"reason,omitempty"`
	Args         []byte                `json:"args,omitempty"`         // only for REPAIR; see ArgsInInit
	ArgsInInit   bool                  `json:"args_in_init,omitempty"` // the args are only in the INIT task
	Actor        string                `json:"actor,omitempty"`
	Source       string                `json:"source,omitempty"`
	RequestID    string                `json:"request_id,omitempty"`
	Expected     int64                 `json:"expected"`
	ExpectedMore bool                  `json:"expected_more,omitempty"`
}

// The rates of bulks, in processes per second.
const (
	DefaultRate = 100
	minRate     = 0.001
	maxRate     = 10_000
)

// check validates and completes a command. verbs contains the verbs of its kind.
func (o *command) check(verbs map[progressorv1.BulkVerb]Verb) error {
	if verbs == nil {
		return &process.InvalidError{Field: "kind",
			Message: fmt.Sprintf("%q is not a kind of bulk: use job or flow, or leave it empty", o.Kind)}
	}
	if _, ok := verbs[o.Verb]; !ok {
		return &process.InvalidError{Field: "verb", Message: "must be one of " + verbNames(verbs)}
	}
	if len(o.Args) > 0 && o.Verb != progressorv1.BulkVerb_BULK_VERB_REPAIR {
		return &process.InvalidError{Field: "args", Message: "only the verb BULK_VERB_REPAIR has args"}
	}
	o.VerbName = o.verbName()
	o.Rate = cmp.Or(o.Rate, DefaultRate)
	if !(o.Rate >= minRate && o.Rate <= maxRate) {
		return &process.InvalidError{Field: "rate",
			Message: fmt.Sprintf("must be 0 (which is %d), or from %g to %d processes a second", DefaultRate, minRate,
				maxRate)}
	}
	return nil
}

// verbNames returns the names of verbs in the order of their numbers.
func verbNames(verbs map[progressorv1.BulkVerb]Verb) string {
	var names []string
	for _, v := range slices.Sorted(maps.Keys(verbs)) {
		names = append(names, strings.TrimPrefix(v.String(), "BULK_VERB_"))
	}
	return strings.Join(names, ", ")
}

// metadata returns the metadata of the bulk's process. Every reader of processes sees it, so it
// does not contain the args: these are in the args of the INIT task.
func (o *command) metadata() ([]byte, error) {
	stored := *o
	stored.Args, stored.ArgsInInit = nil, len(o.Args) > 0
	return json.Marshal(stored)
}

// argsOf returns the args of REPAIR in the args of an INIT task, which command.args has built.
func argsOf(initArgs []byte) (args []byte, err error) {
	var request []json.RawMessage
	if err = json.Unmarshal(initArgs, &request); err == nil && len(request) > 0 {
		err = json.Unmarshal(request[len(request)-1], &args)
	}
	return args, err
}

// args returns the fields that distinguish requests, as the args of the INIT task. The args of
// REPAIR come last.
func (o *command) args() []byte {
	request := []any{o.VerbName, o.Filter, o.Rate, o.Reason}
	if o.Kind != "" {
		request = append(request, o.Kind)
	}
	if len(o.Args) > 0 {
		request = append(request, "args", o.Args)
	}
	text, _ := json.Marshal(request) // cannot fail: only strings and a finite number
	return text
}

func (o *command) verbName() string {
	return strings.ToLower(strings.TrimPrefix(o.Verb.String(), "BULK_VERB_"))
}

// commandOf decodes the command of a bulk's process with unmarshal. Readers that only show it use
// json.Unmarshal. The verb is 0 if a newer version of the engine has stored one that this version
// does not know.
func commandOf(p *progressorv1.Process, unmarshal func([]byte, any) error) (command, error) {
	var o command
	text, err := p.GetMetadata().MarshalJSON()
	if err == nil {
		err = unmarshal(text, &o)
	}
	if err != nil {
		return o, fmt.Errorf("cannot read the command of %s: %w", p.GetProcessId(), err)
	}
	o.Verb = progressorv1.BulkVerb(progressorv1.BulkVerb_value["BULK_VERB_"+strings.ToUpper(o.VerbName)])
	return o, nil
}

// notAccepted converts the error from the check of a stored command. The node that stored the
// command accepted it. If this node rejects the command, the two nodes have different versions.
func (o *command) notAccepted(err error) error {
	invalid, ok := errors.AsType[*process.InvalidError](err)
	if !ok {
		return err
	}
	value := map[string]string{
		"kind": o.Kind, "verb": o.VerbName, "filter": o.Filter, "args": string(o.Args), "rate": fmt.Sprint(o.Rate),
	}[invalid.Field]
	return processor.Fail(process.ReasonNewerState, "a node with another version of the engine has started this bulk: "+
		"this node does not accept the %s %q (%s), and leaves the task to a node with that version", invalid.Field,
		value, invalid.Message)
}

func parsed(text string) search.Filter {
	f, err := search.Parse(text)
	if err != nil {
		panic(err) // a defect in this file
	}
	return f
}

// matching returns the whole filter of a bulk of processes. It selects only processes of users,
// because the methods of ProcessService reject others. It excludes processes that were created
// after the bulk began, so that the bulk ends even if processes are created all the time. If began
// is zero, it excludes none.
func (o *command) matching(began time.Time) (search.Filter, error) {
	f, err := search.Parse(o.Filter)
	if err != nil {
		return f, err
	}
	if began.IsZero() {
		return f.And(search.OfUsers), nil
	}
	return f.And(search.OfUsers).And(parsed(`created_time <= "` + began.UTC().Format(time.RFC3339Nano) + `"`)), nil
}

// progress records how far a bulk has come. It is the state of the process of the bulk.
type progress struct {
	Cursor  search.Cursor `json:"cursor"`           // last process that was visited
	Token   string        `json:"token,omitempty"`  // token of the next page; only for bulks of jobs or runs
	Walked  bool          `json:"walked,omitempty"` // a bulk with a token has processed its last page
	Matched int64         `json:"matched"`
	Done    int64         `json:"done"`
	Skipped int64         `json:"skipped"`
	Failed  int64         `json:"failed"`
	Again   []postponed   `json:"again,omitempty"` // found, but not handled completely yet
	Polled  time.Time     `json:"polled,omitzero"` // when unfinished repairs were last read
}

// postponed is a process that a later page handles. Either the verb failed temporarily, or the
// repair has not ended, or the page that found the process had no time for it.
type postponed struct {
	search.Cursor
	Tries int   `json:"tries"`          // how often the verb failed, or the repair was found unfinished
	Task  int64 `json:"task,omitempty"` // the REPAIR task that had not ended

	Barred  bool `json:"barred,omitempty"`  // its state did not allow the verb when it was found
	Unknown bool `json:"unknown,omitempty"` // it is unknown whether an earlier try took effect
}

// due returns the postponed processes that the next page handles. These are the processes for which
// the verb has not failed. If there are none, they are the processes for which the verb has failed
// temporarily, and the page begins after a pause. later contains the processes that the next page
// does not handle. unfinished contains the processes whose repair has not ended.
func (p *progress) due() (due, later, unfinished []postponed) {
	for _, a := range p.Again {
		switch {
		case a.Task != 0:
			unfinished = append(unfinished, a)
		case a.Tries == 0:
			due = append(due, a)
		default:
			later = append(later, a)
		}
	}
	if len(due) == 0 {
		return later, nil, unfinished
	}
	return due, later, unfinished
}

// progressOf decodes the progress of a bulk with unmarshal. Readers that only show it use
// json.Unmarshal.
func progressOf(p *progressorv1.Process, unmarshal func([]byte, any) error) (progress, error) {
	var now progress
	if len(p.GetAuxState()) == 0 {
		return now, nil // the first task of the bulk has not run
	}
	if err := unmarshal(p.GetAuxState(), &now); err != nil {
		return now, fmt.Errorf("cannot read the state of %s: %w", p.GetProcessId(), err)
	}
	return now, nil
}

// failure is the content of a bulk event.
type failure struct {
	ProcessID string `json:"process_id"`
	Error     string `json:"error"`
}

// message converts the process of a bulk to a message. The events of p are newest first, or
// missing. The args are missing if they are in the INIT task.
func message(p *progressorv1.Process) (*progressorv1.Bulk, error) {
	if p.GetKind() != kind {
		return nil, fmt.Errorf("%s is not a bulk: %w", p.GetProcessId(), process.ErrProcessNotFound)
	}
	o, err := commandOf(p, json.Unmarshal)
	if err != nil {
		return nil, err
	}
	now, err := progressOf(p, json.Unmarshal)
	if err != nil {
		return nil, err
	}
	m := &progressorv1.Bulk{
		Namespace: p.GetNamespace(), BulkId: strings.TrimPrefix(p.GetProcessId(), prefix), Kind: o.Kind,
		Filter: o.Filter, Verb: o.Verb, Rate: o.Rate,
		Matched: now.Matched, Done: now.Done, Failed: now.Failed, Skipped: now.Skipped, Status: p.GetStatus(),
		Detail:      p.GetDetail(),
		CreatedTime: p.GetCreatedTime(), Reason: o.Reason, Args: o.Args,
		Expected: o.Expected, ExpectedMore: o.ExpectedMore,
		Position: now.Cursor.ProcessID, Actor: o.Actor, FinishedTime: finished(p),
	}
	for _, e := range p.GetHistory() {
		var f failure
		if err := json.Unmarshal(e.GetPayload(), &f); err != nil {
			return nil, fmt.Errorf("cannot read event %d of %s: %w", e.GetEventId(), p.GetProcessId(), err)
		}
		m.Failures = append(m.Failures, &progressorv1.BulkFailure{ProcessId: f.ProcessID, Error: f.Error})
	}
	return m, nil
}

func finished(p *progressorv1.Process) *timestamppb.Timestamp {
	switch p.GetStatus() {
	case progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED, progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED:
		return p.GetStatusChangedTime()
	default:
		return nil
	}
}
