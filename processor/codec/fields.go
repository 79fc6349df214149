package codec

import (
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// payloadField is a field of the API that contains a payload.
type payloadField struct {
	purpose Purpose
	// composed means that the engine itself may write the value, or a part of it. Plain parts are
	// then accepted without AcceptPlain.
	composed bool
}

var (
	message  = payloadField{purpose: Message}
	composed = payloadField{purpose: Message, composed: true}
)

// payloadFields lists the fields with payloads, by the name of their message and their own.
var payloadFields = map[string]payloadField{
	// Processes.
	"Process.aux_state":                  {purpose: State},
	"Event.payload":                      {purpose: Event},
	"PutProcessRequest.aux_state":        {purpose: State},
	"PutProcessRequest.context":          {purpose: Context},
	"Task.args":                          message,
	"Task.context":                       {purpose: Context},
	"Task.response":                      message,
	"Failure.details":                    composed, // the engine has failures of its own
	"Rejection.details":                  message,
	"StartRequest.args":                  message,
	"StartRequest.context":               {purpose: Context},
	"StartResponse.response":             message,
	"CallRequest.args":                   message,
	"CallRequest.context":                {purpose: Context},
	"CallResponse.response":              message,
	"RepairRequest.context":              {purpose: Context},
	"RepairRequest.ProcessorRepair.args": message,
	"RepairResponse.response":            message,
	"Change.payload":                     {purpose: Event},

	// Processors and workers.
	"ProcessRequest.args":             message,
	"ProcessRequest.context":          {purpose: Context},
	"ProcessRequest.job_args":         message,
	"ChildEnd.response":               message,
	"Result.aux_state":                {purpose: State},
	"Result.response":                 message,
	"Result.job_result":               message,
	"NewEvent.payload":                {purpose: Event},
	"StartCommand.args":               message,
	"StartCommand.notify_parent_args": message,
	"NotifyCommand.args":              message,
	"Progress.details":                message,
	"JobResult.result":                message,

	// Jobs.
	"Job.args":                   message,
	"Job.result":                 message,
	"WorkerRun.result":           message,
	"EnqueueRequest.args":        message,
	"UpdateJobRequest.args":      message,
	"FetchResultResponse.result": message,
	"JobEvent.metadata":          composed, // such as the failure of an attempt

	// Crons.
	"StartProcessTarget.args":  message,
	"EnqueueJobTarget.args":    message,
	"NotifyProcessTarget.args": message,

	// Flows. The engine composes these values with the expressions of the template.
	"StartRunRequest.payload":    message,
	"CompleteStepRequest.result": message,
	"SkipStepRequest.result":     message,
	"Run.payload":                composed,
	"Run.result":                 composed,
	"Step.input":                 composed,
	"Step.result":                composed,
	"OpenWait.input":             composed,
}

// repeatOf returns the Payload.Repeat of a message within one with the given Repeat: what
// identifies a request if the engine compares its payloads with those of another request.
func repeatOf(m proto.Message, outer string) string {
	switch r := m.(type) {
	case *progressorv1.StartRequest:
		return keyed("start", r.GetIdempotencyKey(), r.GetNamespace(), r.GetProcessId())
	case *progressorv1.CallRequest:
		return keyed("call", r.GetIdempotencyKey(), r.GetNamespace(), r.GetProcessId())
	case *progressorv1.RepairRequest:
		return keyed("repair", r.GetIdempotencyKey(), r.GetNamespace(), r.GetProcessId())
	case *progressorv1.StartRunRequest:
		return keyed("run", r.GetIdempotencyKey(), r.GetNamespace(), r.GetRunId())
	case *progressorv1.EnqueueRequest:
		if unique := uniqueByArgs(r.GetOptions(), r.GetName()); unique != "" {
			return unique
		}
		return keyed("job", r.GetIdempotencyKey(), r.GetNamespace(), r.GetJobId())
	case *progressorv1.EnqueueJobTarget:
		return uniqueByArgs(r.GetOptions(), r.GetName())
	case *progressorv1.CompleteStepRequest: // the same result again is no error
		return joined("step", r.GetNamespace(), r.GetRunId(), r.GetStepId(), r.GetToken())
	}
	return outer
}

// uniqueByArgs returns the Payload.Repeat of a unique job whose key the engine computes from its
// args, and "" for other jobs.
func uniqueByArgs(o *progressorv1.JobOptions, name string) string {
	if o.GetUnique() == nil || o.GetUnique().GetKey() != "" {
		return ""
	}
	return joined("unique", name)
}

// isStored reports whether a message has payloads of the engine itself, or payloads as the engine
// stores them within its own. They are not decoded. These are states and tasks of crons, of runs,
// of jobs of steps and of bulks.
func isStored(m proto.Message) bool {
	switch m := m.(type) {
	case *progressorv1.Process:
		return m.GetKind() != "" || process.Own(m.GetProcessId())
	case *progressorv1.Task:
		return process.Own(m.GetProcessId())
	case *progressorv1.Change:
		return process.Own(m.GetProcessId())
	}
	return false
}

// isReason reports whether the args of a message are the reason of a cancellation, which stays in
// the clear.
func isReason(m proto.Message) bool {
	task, ok := m.(*progressorv1.Task)
	return ok && task.GetType() == progressorv1.TaskType_TASK_TYPE_CANCEL
}
