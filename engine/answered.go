package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

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
	Acknowledged *string // the worker stopped on a cancel directive, with its message
}

// into copies the answer into the end of its attempt.
func (a LeaseAnswer) into(end *attemptEnd) {
	end.response = a.Response
	if a.Acknowledged != nil {
		end.acknowledged = true
		end.response = &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{
			Failure: &progressorv1.Failure{Reason: process.ReasonCancelled, Message: *a.Acknowledged, NonRetryable: true},
		}}
	}
}

// DistinctLeases returns an error if a list in a request names a lease twice, because the result
// would depend on the order. Invalid tokens are rejected where they are parsed.
func DistinctLeases[M interface{ GetLeaseToken() string }](field string, list []M) error {
	type lease struct {
		key   process.Key
		token int64
	}
	seen := make(map[lease]int, len(list))
	for n, m := range list {
		t, err := parseLeaseToken("", m.GetLeaseToken())
		if err != nil {
			continue
		}
		l := lease{t.Key, t.FencingToken}
		if first, twice := seen[l]; twice {
			return &process.InvalidError{Field: fmt.Sprintf("%s[%d].lease_token", field, n), Message: fmt.Sprintf("same lease as %s[%d]", field, first)}
		}
		seen[l] = n
	}
	return nil
}

// answeredBefore returns nil if this answer of a lease is already stored, because the worker sent
// it again after the response was lost. If a different answer is stored, by the worker or by the
// engine, it returns process.ErrFenced.
func (e *Engine) answeredBefore(ctx context.Context, t storage.LeaseToken, a LeaseAnswer) error {
	stands, err := e.store.LeaseAnswered(ctx, t)
	if err != nil {
		return fmt.Errorf("lease of %s: %w", t.Key, err)
	}
	end := attemptEnd{kind: e.kinds[stands.Kind], claim: &storage.Claim{
		Namespace: t.Key.Namespace, ProcessID: t.Key.ProcessID, TaskType: stands.TaskType, FencingToken: t.FencingToken, Kind: stands.Kind, Job: stands.Job,
	}}
	a.into(&end)
	if !sameOutcome(&decide(end).completion, &stands) {
		return fmt.Errorf("lease of %s: %w", t.Key, process.ErrFenced)
	}
	return nil
}

// sameOutcome reports whether a completion has the stored outcome of the attempt. It does not
// compare whether the task was to be retried, because that depended on what was stored before. It
// ignores results that are not kept, the state and the events.
func sameOutcome(c *storage.Completion, stands *storage.Answered) bool {
	switch {
	case stands.Finished == (len(c.Failure) > 0):
		return false
	case c.Job != nil && c.Job.Result != nil && stands.Result != nil && !bytes.Equal(c.Job.Result, stands.Result):
		return false
	}
	return bytes.Equal(c.Response, stands.Response) && equalJSON(wire.Failure, c.Failure, stands.Failure) && equalJSON(wire.Rejection, c.Rejection, stands.Rejection)
}

// equalJSON reports whether two texts are the same message. The database formats JSON in its own
// way.
func equalJSON[M proto.Message](read func(json.RawMessage) (M, error), a, b []byte) bool {
	x, err := read(a)
	if err != nil {
		return false
	}
	y, err := read(b)
	return err == nil && proto.Equal(x, y)
}
