package engine

import (
	"context"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/pull"
)

// callPushed sends a request to the processor. If the attempt may store checkpoints, the request
// has a token for them. Any node may store them, so c and history do not include them until the
// response reports them.
func (e *Engine) callPushed(
	ctx context.Context, ns *namespace, c *storage.Claim, request *progressorv1.ProcessRequest, history *knownHistory,
) (*progressorv1.ProcessResponse, error) {
	if ns.connect.GetCheckpoints() && MayCheckpoint(c) {
		token, err := e.checkpointToken(ctx, attemptOf(c))
		if err != nil { // the task does not need checkpoints
			e.log.WarnContext(ctx, "cannot read the key of checkpoint tokens", "namespace", c.Namespace, "error", err)
		}
		request.CheckpointToken = token
	}
	response, err := ns.process(ctx, request)
	if last := response.GetLastEventId(); err == nil && last != 0 && last != c.LastEventID {
		err = e.followCheckpoints(ctx, c, last, history)
	}
	return response, err
}

// followCheckpoints reads the process of a pushed attempt that has stored checkpoints, and adds
// them to c. last is the last event of the process that the processor knows. If it is not the last
// stored event, followCheckpoints returns an error. In this case the processor does not know
// whether a checkpoint is stored, and its result may contain the same events again.
func (e *Engine) followCheckpoints(ctx context.Context, c *storage.Claim, last int64, history *knownHistory) error {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	key := process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}
	p, err := e.store.GetProcess(limit, key)
	switch {
	case err != nil:
		return fmt.Errorf("%w: read the checkpoints of %s: %w", errReleased, key, err)
	case p.LastEventID != last:
		return &processor.BadResponseError{Err: &process.InvalidError{Field: "last_event_id", Message: fmt.Sprintf(
			"must be %d, the last event of the process (got %d)", p.LastEventID, last)}}
	}
	c.LastEventID, c.AuxState, c.Metadata = p.LastEventID, p.AuxState, p.Metadata
	history.whole = false // the history lacks the events of the checkpoints
	e.watchers.recheck(key)
	return nil
}

// checkpointToken returns the token with which a pushed attempt stores checkpoints. It has the form
// of a lease token. It contains a MAC in place of the salt, which is stored for a lease.
func (e *Engine) checkpointToken(ctx context.Context, attempt storage.AttemptRef) (string, error) {
	mac, err := e.cfg.Secrets.MAC(ctx, checkpointMessage(attempt))
	if err != nil {
		return "", err
	}
	return pull.LeaseToken{Key: attempt.Key, FencingToken: attempt.FencingToken, Salt: mac}.String(), nil
}

// IsCheckpointMAC reports whether mac is that of the checkpoint token of an attempt.
func (e *Engine) IsCheckpointMAC(ctx context.Context, attempt storage.AttemptRef, mac []byte) (bool, error) {
	return e.cfg.Secrets.IsMAC(ctx, checkpointMessage(attempt), mac)
}

func checkpointMessage(attempt storage.AttemptRef) string {
	return fmt.Sprintf("checkpoint %q %q %d", attempt.Key.Namespace, attempt.Key.ProcessID, attempt.FencingToken)
}

// RunningClaim returns the task of an attempt that this node runs, or nil. It does not include
// checkpoints, and must not be modified.
func (e *Engine) RunningClaim(attempt storage.AttemptRef) *storage.Claim {
	return e.attempts.claimOf(attempt)
}
