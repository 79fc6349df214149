package crons

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/explain"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// stateVersion is the version of the state's format. It changes when the meaning of existing fields
// changes.
const stateVersion = 1

// state is the state of a cron's process. It is stored as one line of JSON, followed by the
// definition in protobuf.
type state struct {
	Version   int              `json:"v"`
	Revision  int64            `json:"revision"` // revision of the definition; used as etag
	Created   time.Time        `json:"created"`
	Updated   time.Time        `json:"updated"`
	PauseNote string           `json:"pause_note,omitempty"`
	PausedBy  string           `json:"paused_by,omitempty"`
	PauseTime time.Time        `json:"pause_time,omitzero"`
	Decisions map[string]int64 `json:"decisions,omitempty"` // number of fire times by decision
	LastFire  time.Time        `json:"last_fire,omitzero"`  // fire time of the newest run that was started
	Cron      cron.State       `json:"cron"`
	Next      time.Time        `json:"next,omitzero"` // when to check fire times next
	// Deadlines contains the deadlines of the running runs, if the policy has a timeout.
	Deadlines []deadline `json:"deadlines,omitempty"`
	// Replaced contains the runs that were cancelled because another run replaced them. The
	// policies ignore them, but their end is recorded.
	Replaced []time.Time `json:"replaced,omitempty"`
	// Independent contains the running runs that the policies of the cron ignore: those that were
	// started by RerunFire or by in-order backfills.
	Independent []independentRun `json:"independent,omitempty"`
	// Unsent contains the messages to runs that were decided but not sent, in order. Each result
	// sends some of them.
	Unsent    []outgoing `json:"unsent,omitempty"`
	Backfills []backfill `json:"backfills,omitempty"` // not complete, in order
	Timer     time.Time  `json:"timer,omitzero"`      // time to which the default timer is set

	definition *progressorv1.Cron
}

type deadline struct {
	Fire time.Time `json:"fire"`
	Due  time.Time `json:"due"`
}

// outgoing is a message that starts or cancels a run.
type outgoing struct {
	Fire    time.Time `json:"fire"`
	Attempt int32     `json:"attempt,omitempty"` // attempt of a start
	Rerun   int32     `json:"rerun,omitempty"`   // see attemptID
	Cancel  string    `json:"cancel,omitempty"`  // why the run is cancelled; "" for a start
}

// The values of outgoing.Cancel.
const (
	cancelLate     = "late"
	cancelReplaced = "replaced"
	cancelCommand  = "command"
)

// cancelReasons maps outgoing.Cancel to the reason that is sent to the run.
var cancelReasons = map[string]string{
	cancelLate: "the timeout of its cron expired", cancelReplaced: "another run of its cron replaced it",
	cancelCommand: "its fire was cancelled",
}

// independentRun is a run that the policies for overlap, failure and concurrency ignore.
type independentRun struct {
	Fire     time.Time `json:"fire"`
	Rerun    int32     `json:"rerun,omitempty"`    // see attemptID
	Backfill bool      `json:"backfill,omitempty"` // an in-order backfill started it
}

// independentRun returns the index in Independent of the run of a fire, or -1.
func (s *state) independentRun(fire time.Time) int {
	return slices.IndexFunc(s.Independent, func(r independentRun) bool { return r.Fire.Equal(fire) })
}

// rerunOf returns the rerun number of the running run of a fire (see attemptID).
func (s *state) rerunOf(fire time.Time) int32 {
	if n := s.independentRun(fire); n >= 0 {
		return s.Independent[n].Rerun
	}
	return 0
}

func (s *state) encode() ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("state of a cron: %w", err)
	}
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(append(text, '\n'), s.definition)
}

// decode decodes a state with unmarshal. If the state is only shown, unmarshal is json.Unmarshal.
// If a task will store the state again, it is actor.Decode.
func decode(text []byte, unmarshal func([]byte, any) error) (*state, error) {
	head, body, ok := bytes.Cut(text, []byte{'\n'})
	if !ok {
		return nil, errors.New("the state of the cron cannot be read: it is truncated")
	}
	s := &state{definition: &progressorv1.Cron{}}
	err := unmarshal(head, s)
	if err == nil {
		err = proto.Unmarshal(body, s.definition)
	}
	if err != nil {
		return nil, fmt.Errorf("the state of the cron cannot be read: %w", err)
	}
	return s, nil
}

func (s *state) etag() string { return strconv.FormatInt(s.Revision, 10) }

// compile compiles the definition, which was validated before it was stored.
func (s *state) compile() (cron.Cron, error) { return compile(s.definition, s.Created, "cron.") }

// timer returns the time of the next timed work of the process, or zero if there is none.
func (s *state) timer(now time.Time) time.Time {
	at := s.Next
	if len(s.Unsent) > 0 || s.canBackfill() {
		at = now
	}
	for _, d := range s.Deadlines {
		if at.IsZero() || d.Due.Before(at) {
			at = d.Due
		}
	}
	return at
}

// maxWaiting is the maximum number of fire times that are counted while they wait for a resume. It
// is small, because a list may contain 1,000 crons.
const maxWaiting = 1000

// shown is the number of upcoming fire times in a message.
const shown = 10

// message converts the state of the cron to the message of the API.
func (s *state) message(now time.Time) (*progressorv1.Cron, error) {
	c, err := s.compile()
	if err != nil {
		return nil, err
	}
	m := proto.CloneOf(s.definition)
	maskHeaders(m)
	m.Paused, m.PauseNote, m.CreatedTime, m.UpdatedTime, m.LastFireTime = s.Cron.Paused, s.PauseNote, stamp(s.Created),
		stamp(s.Updated), stamp(s.LastFire)
	m.FiresByDecision, m.Etag, m.Failures = s.Decisions, s.etag(), s.Cron.Failures
	ahead := s.Cron
	if ahead.Decided.Before(now) {
		ahead.Decided = now // fire times that wait for a resume are not upcoming
	}
	if s.Cron.Paused {
		m.WaitingFires = int64(c.Waiting(s.Cron, now, maxWaiting))
	}
	for _, fire := range c.Upcoming(ahead, shown) {
		m.NextFireTimes = append(m.NextFireTimes, stamp(fire))
	}
	for _, fire := range s.Cron.Running {
		m.RunningProcessIds = append(m.RunningProcessIds, runID(s.definition, fire, 0))
	}
	for _, b := range s.Backfills {
		m.Backfills = append(m.Backfills, &progressorv1.Backfill{
			FromTime: stamp(b.From), ToTime: stamp(b.To), OverlapAction: progressorv1.OverlapAction(b.Overlap),
			MaxConcurrency: b.Concurrency,
		})
	}
	for _, run := range s.Independent {
		m.RunningProcessIds = append(m.RunningProcessIds, runID(s.definition, run.Fire, run.Rerun))
	}
	return m, nil
}

// explained adds to an explanation whether the cron is paused, its running and queued runs, and its
// next fire time.
func explained(_ context.Context, p *progressorv1.Process, e *explain.State) error {
	if len(p.GetAuxState()) == 0 {
		return nil // it is being created
	}
	s, err := stateOf(p)
	if err != nil {
		return err
	}
	c, err := s.compile()
	if err != nil {
		return err
	}
	now, limit := &s.Cron, s.definition.GetSpec().GetMaxFires()
	said := &explain.Cron{
		ID: s.definition.GetCronId(), Paused: now.Paused, PausedBy: s.PausedBy, Note: s.PauseNote, Since: s.PauseTime,
		Queued: len(now.Queue), RunsIn: place(s.definition).Namespace,
		MaxRuns: max(c.Policy.MaxConcurrency, cron.DefaultMaxConcurrency), Failures: now.Failures,
		TrialFrom: c.TrialFrom(*now), Spent: limit > 0 && now.Runs >= limit,
	}
	if now.Paused {
		said.Missed = c.Waiting(*now, e.Now, maxWaiting)
		said.More = said.Missed == maxWaiting
	}
	for _, fire := range c.Upcoming(*now, 1) {
		said.Next = fire
	}
	for _, fire := range now.Running {
		said.Running = append(said.Running, runID(s.definition, fire, 0))
	}
	e.Cron = said
	return nil
}
