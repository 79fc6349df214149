package bulk

import (
	"context"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// processVerbs returns the verbs of a bulk of processes of users. They are the commands of
// operators.
func processVerbs(e *engine.Engine) map[progressorv1.BulkVerb]Verb {
	return map[progressorv1.BulkVerb]Verb{
		progressorv1.BulkVerb_BULK_VERB_SIMPLE_REPAIR: {
			statuses(process.StatusError),
			func(ctx context.Context, key process.Key, _ string, by process.Actor) error {
				_, err := e.Repair(ctx, engine.RepairParams{Key: key, Simple: true, Actor: by})
				return err
			},
		},
		progressorv1.BulkVerb_BULK_VERB_SUSPEND: {
			statuses(process.StatusInit, process.StatusRunning, process.StatusSuspended),
			func(ctx context.Context, key process.Key, reason string, by process.Actor) error {
				_, err := e.SuspendProcess(ctx, key, reason, by)
				return err
			},
		},
		progressorv1.BulkVerb_BULK_VERB_RESUME: {
			statuses(process.StatusRunning, process.StatusSuspended),
			func(ctx context.Context, key process.Key, _ string, by process.Actor) error {
				_, err := e.ResumeProcess(ctx, key, by)
				return err
			},
		},
		progressorv1.BulkVerb_BULK_VERB_CANCEL: {
			statuses(process.StatusInit, process.StatusRunning, process.StatusSuspended, process.StatusError),
			func(ctx context.Context, key process.Key, reason string, by process.Actor) error {
				_, err := e.CancelProcess(ctx, engine.CancelParams{Key: key, Reason: reason, Actor: by})
				return err
			},
		},
		progressorv1.BulkVerb_BULK_VERB_REMOVE: {
			nil,
			func(ctx context.Context, key process.Key, _ string, by process.Actor) error {
				return e.RemoveProcess(ctx, key, by)
			},
		},
	}
}

func statuses(all ...process.Status) []string {
	names := make([]string, len(all))
	for n, s := range all {
		names[n] = string(s)
	}
	return names
}
