package wire

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// JobEvent returns an event of a job, a run or a step as clients see it. An event of a step's job
// names the step.
func JobEvent(e *jobs.EventRow) (*progressorv1.JobEvent, error) {
	metadata, err := Struct(e.Metadata)
	m := &progressorv1.JobEvent{
		EventId: e.EventID, Namespace: e.Namespace, JobId: e.JobID, StepId: e.StepID, Type: e.Type, From: e.FromStatus,
		To: e.ToStatus, Message: e.Message,
		Metadata: metadata, Attempt: e.Attempt, WorkerId: e.WorkerID, Actor: e.Actor,
		CreatedTime: timestamppb.New(e.CreatedTime),
	}
	if e.Index >= 0 {
		m.Index = &e.Index
	}
	if step, ok := process.ParseStepJob(e.JobID); ok {
		m.StepId = step.StepID
		if step.Index >= 0 {
			m.Index = &step.Index
		}
	}
	return m, err
}
