package bulk

import (
	"context"
	"slices"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// verb is an action of a bulk on a process. It is equivalent to a single command of an operator.
type verb struct {
	allowed []process.Status // statuses that allow it
	do      func(ctx context.Context, e *engine.Engine, key process.Key, reason string, by process.Actor) error
}

var verbs = map[progressorv1.BulkVerb]verb{
	progressorv1.BulkVerb_BULK_VERB_SIMPLE_REPAIR: {
		[]process.Status{process.StatusError},
		func(ctx context.Context, e *engine.Engine, key process.Key, _ string, by process.Actor) error {
			_, err := e.Repair(ctx, engine.RepairParams{Key: key, Simple: true, Actor: by})
			return err
		},
	},
	progressorv1.BulkVerb_BULK_VERB_SUSPEND: {
		[]process.Status{process.StatusInit, process.StatusRunning, process.StatusSuspended},
		func(ctx context.Context, e *engine.Engine, key process.Key, reason string, by process.Actor) error {
			_, err := e.SuspendProcess(ctx, key, reason, by)
			return err
		},
	},
	progressorv1.BulkVerb_BULK_VERB_RESUME: {
		[]process.Status{process.StatusRunning, process.StatusSuspended},
		func(ctx context.Context, e *engine.Engine, key process.Key, _ string, by process.Actor) error {
			_, err := e.ResumeProcess(ctx, key, by)
			return err
		},
	},
	progressorv1.BulkVerb_BULK_VERB_CANCEL: {
		[]process.Status{process.StatusInit, process.StatusRunning, process.StatusSuspended, process.StatusError},
		func(ctx context.Context, e *engine.Engine, key process.Key, reason string, by process.Actor) error {
			_, err := e.CancelProcess(ctx, engine.CancelParams{Key: key, Reason: reason, Actor: by})
			return err
		},
	},
	progressorv1.BulkVerb_BULK_VERB_REMOVE: {
		process.Statuses(),
		func(ctx context.Context, e *engine.Engine, key process.Key, _ string, by process.Actor) error {
			return e.RemoveProcess(ctx, key, by)
		},
	},
}

func (v verb) allows(s process.Status) bool { return slices.Contains(v.allowed, s) }
