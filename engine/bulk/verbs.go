package bulk

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// processVerbs returns the verbs of a bulk that acts on processes of users. Each verb is a command
// of operators.
func processVerbs(e *engine.Engine) map[progressorv1.BulkVerb]Verb {
	return map[progressorv1.BulkVerb]Verb{
		progressorv1.BulkVerb_BULK_VERB_SIMPLE_REPAIR: {
			Allowed: statuses(process.StatusError),
			Do: func(ctx context.Context, key process.Key, _ Options, by process.Actor) error {
				_, err := e.Repair(ctx, engine.RepairParams{Key: key, Simple: true, Actor: by})
				return err
			},
		},
		progressorv1.BulkVerb_BULK_VERB_REPAIR: {
			Allowed: statuses(process.StatusError), Keyed: true,
			Do: func(ctx context.Context, key process.Key, o Options, by process.Actor) error {
				return repair(ctx, e, key, o, by)
			},
		},
		progressorv1.BulkVerb_BULK_VERB_SUSPEND: {
			Allowed: statuses(process.StatusInit, process.StatusRunning, process.StatusSuspended),
			Do: func(ctx context.Context, key process.Key, o Options, by process.Actor) error {
				_, err := e.SuspendProcess(ctx, key, o.Reason, by)
				return err
			},
		},
		progressorv1.BulkVerb_BULK_VERB_RESUME: {
			Allowed: statuses(process.StatusRunning, process.StatusSuspended),
			Do: func(ctx context.Context, key process.Key, _ Options, by process.Actor) error {
				_, err := e.ResumeProcess(ctx, key, by)
				return err
			},
		},
		progressorv1.BulkVerb_BULK_VERB_CANCEL: {
			Allowed: statuses(process.StatusInit, process.StatusRunning, process.StatusSuspended, process.StatusError),
			Do: func(ctx context.Context, key process.Key, o Options, by process.Actor) error {
				_, err := e.CancelProcess(ctx, engine.CancelParams{Key: key, Reason: o.Reason, Actor: by})
				return err
			},
		},
		progressorv1.BulkVerb_BULK_VERB_REMOVE: {
			Allowed: nil,
			Do: func(ctx context.Context, key process.Key, _ Options, by process.Actor) error {
				return e.RemoveProcess(ctx, key, by)
			},
		},
	}
}

// repairWait is how long a bulk waits for the REPAIR task of a process. It is short, because the
// bulk may have the slot that the task needs.
const repairWait = 2 * time.Second

// repair repairs a process with its processor. If the repair has not ended in time, it returns an
// *engine.TaskError with WaitTimeout. The idempotency key prevents a second repair if the request
// is repeated.
func repair(ctx context.Context, e *engine.Engine, key process.Key, o Options, by process.Actor) error {
	_, err := e.Repair(ctx, engine.RepairParams{
		Key: key, Args: o.Args, IdempotencyKey: by.Via, Timeout: repairWait, Actor: by,
	})
	return err
}

func statuses(all ...process.Status) []string {
	names := make([]string, len(all))
	for n, s := range all {
		names[n] = string(s)
	}
	return names
}
