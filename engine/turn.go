package engine

import (
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage"
)

// turn is a claim that runs in a slot, with what the node knows from the previous attempt.
type turn struct {
	claim *storage.Claim
	known *knownHistory // history of its process, or nil
	run   *waitingRun   // the run that waits for it, or nil
	// stale is true if this node does not know the state of the process, because a pushed attempt
	// has stored checkpoints that its response did not report. The task is then released.
	stale  bool
	kept   *processor.Kept // value that the processor keeps for this task, or nil
	config []byte          // configuration of the namespace when kept was set
}

// keepsFor reports whether the processor of a claim may keep a value.
func keepsFor(ns *namespace, c *storage.Claim) bool { return c.Kind == "" && ns.processor != nil }

// followingClaim returns the next claim of the process: the task that storage promoted, with the
// state of the process after the completion. stale is true if the process has events that c and
// done do not contain.
func followingClaim(
	c *storage.Claim, done *storage.Completion, next *storage.Claim,
) (following *storage.Claim, stale bool) {
	stored := next.LastEventID
	next.PreviousStatus, next.StatusChangedTime, next.CreatedTime, next.Kind = c.PreviousStatus, c.StatusChangedTime,
		c.CreatedTime, c.Kind
	if next.Status != c.Status {
		next.PreviousStatus, next.StatusChangedTime = string(c.Status), next.RunningTime
	}
	next.AuxState, next.Metadata, next.LastEventID = c.AuxState, c.Metadata, c.LastEventID
	if done.Outcome == storage.Finished {
		next.LastEventID += int64(len(done.Events))
		if done.AuxState != nil {
			next.AuxState = done.AuxState
		}
		if done.Metadata != nil {
			next.Metadata = done.Metadata
		}
	}
	return next, next.LastEventID != stored
}
