package engine

import (
	"bytes"
	"encoding/json"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// LeaseAnswer is the answer of a worker to a lease. Exactly one of Response and Acknowledged is
// set.
type LeaseAnswer struct {
	Response     *progressorv1.ProcessResponse
	Acknowledged *string // message of a worker that stopped because of a cancel directive
	// LastEventID is the ID of the last event of the process, as returned by the last checkpoint.
	// It is 0 if the attempt has made no checkpoint.
	LastEventID int64
}

// into copies the answer into the end of its attempt.
func (a LeaseAnswer) into(end *attemptEnd) {
	end.response = a.Response
	if a.Acknowledged != nil {
		end.acknowledged = true
		end.response = &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{
			Failure: &progressorv1.Failure{
				Reason: process.ReasonCancelled, Message: *a.Acknowledged, NonRetryable: true,
			},
		}}
	}
}

// IsStored reports whether an answer has the outcome that is stored for its attempt.
func (e *Engine) IsStored(a LeaseAnswer, ref storage.AttemptRef, stored *storage.Answered) bool {
	end := attemptEnd{kind: e.kinds[stored.Kind], messages: e.kindMessage, claim: &storage.Claim{
		Namespace: ref.Key.Namespace, ProcessID: ref.Key.ProcessID, TaskID: stored.TaskID, TaskType: stored.TaskType,
		FencingToken: ref.FencingToken,
		Kind:         stored.Kind, KindName: stored.KindName, KindOptions: stored.KindOptions,
	}}
	a.into(&end)
	return sameOutcome(&decide(end).completion, stored)
}

// sameOutcome reports whether a completion has the stored outcome of the attempt. It ignores
// whether the task was retried, because that depends on what was stored before. It also ignores
// results that are not kept, the state and the events.
func sameOutcome(c *storage.Completion, stored *storage.Answered) bool {
	switch {
	case stored.Finished == (len(c.Failure) > 0):
		return false
	case c.DeferResponse: // a reply may have ended the task since
		return true
	case c.Kept != nil && stored.Result != nil && !bytes.Equal(c.Kept, stored.Result):
		return false
	}
	return bytes.Equal(c.Response, stored.Response) && equalJSON(wire.Failure, c.Failure, stored.Failure) &&
		equalJSON(wire.Rejection, c.Rejection, stored.Rejection)
}

// equalJSON reports whether a and b are the same message. It does not compare the texts, because
// the database reformats JSON.
func equalJSON[M proto.Message](read func(json.RawMessage) (M, error), a, b []byte) bool {
	x, err := read(a)
	if err != nil {
		return false
	}
	y, err := read(b)
	return err == nil && proto.Equal(x, y)
}
