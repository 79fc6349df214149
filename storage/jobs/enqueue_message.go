package jobs

import (
	"encoding/json"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// messageJob is the part of a start message that makes the process a job. It is stored in
// messages.job.
type messageJob struct {
	Name          string          `json:"name"`
	Priority      int32           `json:"priority"`
	TimeoutUs     int64           `json:"timeoutUs"`
	Tags          json.RawMessage `json:"tags,omitempty"`
	Options       json.RawMessage `json:"options,omitempty"`
	UniqueKey     string          `json:"uniqueKey,omitempty"`
	UniqueTTLUs   int64           `json:"uniqueTtlUs,omitempty"`
	UniqueWaiting bool            `json:"uniqueWaiting,omitempty"`

	// ConstraintsVersion may be outdated or missing. The keys are then evaluated after the
	// delivery.
	ConstraintsVersion int64             `json:"constraintsVersion,omitempty"`
	ConstraintKeys     map[string]string `json:"constraintKeys,omitempty"`
	Line               string            `json:"line,omitempty"`

	FairnessKey *string `json:"fairnessKey,omitempty"`
}

// Message returns a start message that enqueues the job. It has no idempotency key, because a
// message is delivered once.
func (j *NewJob) Message() (storage.Message, error) {
	job, err := json.Marshal(messageJob{
		Name: j.Name, Priority: j.Priority, TimeoutUs: j.Timeout.Microseconds(), Tags: j.Tags, Options: j.Options,
		UniqueKey: j.Unique.Key, UniqueTTLUs: j.Unique.TTL.Microseconds(), UniqueWaiting: j.Unique.Waiting,
		ConstraintsVersion: j.Constraints.Version, ConstraintKeys: j.Constraints.Keys, Line: j.Constraints.FirstKey(),
		FairnessKey: j.FairnessKey,
	})
	return storage.Message{
		Kind: storage.MessageStart, Target: j.Key, Args: j.Args, Metadata: j.Metadata, StartTime: j.RunTime,
		StartedKind: process.JobKind, KindRow: job,
		Plain: j.Unique.Key == "" && j.RunTime.IsZero() && j.Constraints.Version == 0 && j.FairnessKey == nil &&
			!j.Grouped,
	}, err
}
