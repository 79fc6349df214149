package crons

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/crons"
)

// command is a request of a client that changes a cron. It is encoded in the args of the task that
// executes it. Every change of a cron is a task of its process, so commands and fires are processed
// one after the other.
type command struct {
	Method     string             `json:"method"` // the method of the API
	Actor      string             `json:"actor,omitempty"`
	Source     string             `json:"source,omitempty"`
	RequestID  string             `json:"request_id,omitempty"`
	Cron       []byte             `json:"cron,omitempty"` // encoded Cron; only for CreateCron and UpdateCron
	Etag       string             `json:"etag,omitempty"`
	Paused     bool               `json:"paused,omitempty"` // only for CreateCron
	Note       string             `json:"note,omitempty"`
	SkipMissed bool               `json:"skip_missed,omitempty"`
	Overlap    cron.OverlapAction `json:"overlap,omitempty"`
	From       time.Time          `json:"from,omitzero"`
	To         time.Time          `json:"to,omitzero"`
	// Concurrency is the max_concurrency of BackfillCron. See backfill for the meaning of 0.
	Concurrency int32     `json:"concurrency,omitempty"`
	Fire        time.Time `json:"fire,omitzero"` // only for CancelFire and RerunFire
}

// The values of command.Method.
const (
	methodCreate   = "CreateCron"
	methodUpdate   = "UpdateCron"
	methodDelete   = "DeleteCron"
	methodPause    = "PauseCron"
	methodResume   = "ResumeCron"
	methodTrigger  = "TriggerCron"
	methodBackfill = "BackfillCron"
	methodCancel   = "CancelFire"
	methodRerun    = "RerunFire"
	methodStop     = "StopBackfills"
)

// answered is the response to a command.
type answered struct {
	Fire      time.Time `json:"fire,omitzero"`       // only for TriggerCron
	Backfills int32     `json:"backfills,omitempty"` // number of stopped backfills; only for StopBackfills
	Now       time.Time `json:"now"`                 // when the command was executed
}

// Reasons of rejections. The details of rejectedInvalid contain the name of the field.
const (
	rejectedStale   = "stale_etag"
	rejectedInvalid = "invalid"
	rejectedStatus  = "status"
	rejectedFull    = "full"
	rejectedPaused  = "namespace_paused"
)

// execute executes a command. A rejected command changes nothing.
func (t *task) execute() error {
	var o command
	if err := json.Unmarshal(t.Request.GetArgs(), &o); err != nil {
		return processor.Reject(processor.ReasonBadArgs, "%w", err)
	}
	creates := t.Request.GetType() == progressorv1.TaskType_TASK_TYPE_INIT
	if creates != (o.Method == methodCreate) {
		return processor.Reject(processor.ReasonBadArgs, "command %s does not match the state of the cron", o.Method)
	}
	before := t.definitionJSON()
	t.Result.JSONResponse(answered{Now: t.Now})
	if err := t.apply(&o); err != nil {
		return err
	}
	note := &storage.AuditRecord{
		Method: o.Method, By: process.Actor{Name: o.Actor, Source: o.Source, RequestID: o.RequestID},
		Details: map[string]string{"note": o.Note},
	}
	switch o.Method {
	case methodCreate, methodUpdate:
		note.Change = storage.ConfigChange{Before: before, After: t.definitionJSON()}
	case methodDelete:
		note.Change = storage.ConfigChange{Before: before}
	}
	t.AddEffects(note)
	return nil
}

// definitionJSON returns the definition of the cron for the audit, or nil before it is created.
func (t *task) definitionJSON() []byte {
	if t.state == nil {
		return nil
	}
	text, err := protojson.Marshal(t.state.definition)
	if err != nil {
		return nil // cannot happen: it was decoded
	}
	return text
}

func (t *task) apply(o *command) error {
	t.keptPaused = t.crons.engine.IsPaused(t.Key.Namespace)
	t.cron.NamespacePaused = t.keptPaused
	switch o.Method {
	case methodCreate:
		return t.create(o)
	case methodUpdate:
		return t.update(o)
	case methodDelete:
		t.remove()
	case methodPause:
		t.paused(o.Note, cmp.Or(o.Actor, o.Source))
		t.applyStep(t.cron.Pause(t.state.Cron, t.Now))
	case methodResume:
		t.state.PauseNote, t.state.PausedBy, t.state.PauseTime = "", "", time.Time{}
		t.resumed = t.state.Cron.Paused
		t.applyStep(t.cron.Resume(t.state.Cron, o.SkipMissed, t.Now))
	case methodTrigger:
		if t.keptPaused {
			return processor.Reject(rejectedPaused, "no run can start while the namespace is paused")
		}
		t.applyStep(t.cron.Trigger(t.state.Cron, o.Overlap, t.Now))
		t.Result.JSONResponse(answered{Fire: t.state.Cron.Manual, Now: t.Now})
	case methodBackfill:
		return t.startBackfill(o)
	case methodCancel:
		return t.cancelFire(o.Fire)
	case methodRerun:
		return t.rerunFire(o.Fire)
	case methodStop:
		n := int32(len(t.state.Backfills)) //nolint:gosec // at most 20
		t.Result.JSONResponse(answered{Backfills: n, Now: t.Now})
		t.state.Backfills = nil
	default:
		return processor.Reject(processor.ReasonBadArgs, "unknown command %s", o.Method)
	}
	return nil
}

// paused records the note and the author of a pause. It records the time only if the cron is not
// already paused. by is "" if the cron paused itself or the author is not known.
func (t *task) paused(note, by string) {
	s := t.state
	if !s.Cron.Paused {
		s.PauseTime = t.Now
	}
	s.PauseNote, s.PausedBy = note, by
}

// rejection converts a validation error of a definition to a rejection of the task.
func rejection(err error) error {
	var wrong *process.InvalidError
	if errors.As(err, &wrong) {
		return processor.Reject(rejectedInvalid, "%s", wrong.Message).WithDetails([]byte(wrong.Field))
	}
	return err
}

func (t *task) create(o *command) error {
	definition := &progressorv1.Cron{}
	if err := proto.Unmarshal(o.Cron, definition); err != nil {
		return processor.Reject(processor.ReasonBadArgs, "%w", err)
	}
	t.state = &state{
		Version: stateVersion, Revision: 1, Created: t.Now, Updated: t.Now, Cron: cron.NewState(t.Now),
		definition: definition,
	}
	var err error
	if t.cron, err = t.state.compile(); err != nil {
		return rejection(err)
	}
	t.cron.NamespacePaused = t.keptPaused
	if o.Paused {
		t.paused(o.Note, cmp.Or(o.Actor, o.Source))
		t.applyStep(t.cron.Pause(t.state.Cron, t.Now))
		return nil
	}
	t.applyStep(t.cron.Tick(t.state.Cron, t.Now))
	return nil
}

// update replaces the definition of the cron. The old spec and policy decide the fire times that
// are already due, but their runs get the new target. A changed spec applies from now on.
func (t *task) update(o *command) error {
	s := t.state
	if o.Etag != "" && o.Etag != s.etag() {
		return processor.Reject(rejectedStale, "the cron has changed: its etag is %q now", s.etag())
	}
	definition := &progressorv1.Cron{}
	if err := proto.Unmarshal(o.Cron, definition); err != nil {
		return processor.Reject(processor.ReasonBadArgs, "%w", err)
	}
	if err := keepHeaders(definition, s.definition); err != nil {
		return rejection(err)
	}
	next, err := compile(definition, s.Created, "cron.")
	if err != nil {
		return rejection(err)
	}
	moves := place(definition) != place(s.definition) ||
		runID(definition, time.Time{}, 0) != runID(s.definition, time.Time{}, 0)
	if moves && len(s.Cron.Running)+len(s.Independent)+len(s.Replaced)+len(s.Unsent) > 0 {
		return processor.Reject(rejectedStatus,
			"the kind and the namespace of its target cannot change while the cron has runs: "+
				"pause it and wait for its runs to end")
	}
	// The runs that this tick starts are sent with the new definition, so their rows must refer to
	// runs of the new target.
	spec := s.definition.GetSpec()
	s.definition = proto.CloneOf(s.definition)
	s.definition.Target, t.cron.Refusable = definition.GetTarget(), next.Refusable
	t.applyStep(t.cron.Tick(s.Cron, t.Now))
	if !proto.Equal(definition.GetSpec(), spec) {
		s.Cron.Decided, s.Cron.Backfills, s.Cron.Old, s.Backfills = t.Now, nil, nil, nil
	}
	t.cron, s.definition, s.Updated = next, definition, t.Now
	t.cron.NamespacePaused = t.keptPaused
	s.Revision++
	t.applyStep(t.cron.Tick(s.Cron, t.Now))
	t.Result.Metadata(definition.GetMetadata().AsMap())
	return nil
}

// cancelFire removes a waiting fire from the queue, or cancels the run of a fire.
func (t *task) cancelFire(fire time.Time) error {
	s := t.state
	if step, withdrawn := t.cron.RemoveQueued(s.Cron, fire, t.Now); withdrawn {
		t.endRow(fire, cron.Cancelled, "the fire was cancelled before it started")
		t.applyStep(step)
		return nil
	}
	rerun := s.rerunOf(fire)
	asked := slices.ContainsFunc(s.Unsent, func(o outgoing) bool {
		return o.Fire.Equal(fire) && o.Rerun == rerun && o.Cancel != ""
	})
	switch {
	case asked || slices.ContainsFunc(s.Replaced, fire.Equal): // the run is already being cancelled
	case slices.ContainsFunc(s.Cron.Running, fire.Equal) || s.independentRun(fire) >= 0:
		t.send(outgoing{Fire: fire, Rerun: rerun, Cancel: cancelCommand})
	default:
		return processor.Reject(rejectedStatus, "the fire of %s is neither running nor waiting",
			fire.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// place returns the part of a run's key that does not depend on its fire. Definitions with the same
// place start runs in the same namespace, with the same prefix of their process IDs.
func place(c *progressorv1.Cron) process.Key { return runKey(c, time.Time{}, 0) }

// remove deletes the cron. Its runs continue, and its waiting fires never start.
func (t *task) remove() {
	var cancels []outgoing
	never := func(fire time.Time) {
		t.row(crons.Fire{
			Fire: cron.Fire{Time: fire, Status: cron.Cancelled, Decision: cron.Queued, Count: 1}, Change: crons.Ended,
			Detail: "the cron was deleted",
		})
	}
	for _, w := range t.state.Cron.Queue {
		never(w.Fire)
	}
	for _, e := range t.state.Unsent {
		if e.Cancel != "" {
			cancels = append(cancels, e)
		} else {
			never(e.Fire)
		}
	}
	t.state.Unsent = cancels
	t.deletes = true
}
