package codec

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// payloadField describes a field of the API that contains a payload.
type payloadField struct {
	purpose Purpose
	form    form // the form that is accepted without AcceptPlain
}

// form describes where a JSON value contains encoded payloads. Every form accepts null.
type form int

const (
	encodedWhole  form = iota // the value is an encoded payload
	encodedOrNot              // the value may contain parts that the engine wrote, which are not encoded
	encodedParts              // encoded payloads, or lists or objects of them
	resultOrParts             // an encoded payload, or an object with the results of several workers
	compensation              // the args of a compensation: its input and the result of its step
)

// accepts reports whether a value that is not an encoded payload can have the form f.
func (f form) accepts(value *structpb.Value) bool {
	object, list := value.GetStructValue(), value.GetListValue()
	switch f {
	case encodedOrNot:
		return true
	case encodedParts:
		return object != nil || list != nil
	case resultOrParts:
		return object != nil
	case compensation:
		_, input := object.GetFields()["input"]
		_, result := object.GetFields()["result"]
		return input && result && len(object.GetFields()) == 2
	default:
		return false
	}
}

// member returns the form of a member or an item of a value with the form f.
func (f form) member(name string) form {
	switch f {
	case encodedOrNot, encodedParts:
		return f
	case compensation:
		if name == "result" { // may be the list of the results of the items
			return encodedParts
		}
	}
	return encodedWhole
}

// formIn returns the form of a field of m.
func (f payloadField) formIn(m proto.Message, name protoreflect.Name) form {
	switch m := m.(type) {
	case *progressorv1.ProcessRequest:
		if (name == "args" || name == "job_args") && process.MayCompensate(m.GetProcess().GetProcessId()) {
			return compensation
		}
	case *progressorv1.ChildEnd:
		if strings.HasPrefix(m.GetProcessId(), process.FlowPrefix) {
			return encodedOrNot // the engine composes the result of a run
		}
	case *progressorv1.Job:
		if name == "args" && process.MayCompensate(m.GetJobId()) {
			return compensation
		}
		if name == "result" && m.GetOptions().GetWorkers() != nil {
			return resultOrParts
		}
	}
	return f.form
}

var (
	message  = payloadField{purpose: Message}
	composed = payloadField{purpose: Message, form: encodedOrNot}
)

// payloadFields contains the fields with payloads. The keys are MESSAGE.FIELD.
var payloadFields = map[string]payloadField{
	// Processes.
	"Process.aux_state":                  {purpose: State},
	"Event.payload":                      {purpose: Event},
	"PutProcessRequest.aux_state":        {purpose: State},
	"PutProcessRequest.context":          {purpose: Context},
	"Task.args":                          message,
	"Task.context":                       {purpose: Context},
	"Task.response":                      message,
	"Failure.details":                    composed, // some failures come from the engine itself
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
	"StartBulkRequest.args":              message, // for repairs
	"Bulk.args":                          message,
	"Change.payload":                     {purpose: Event},

	// Processors and workers.
	"ProcessRequest.args":                message,
	"ProcessRequest.context":             {purpose: Context},
	"ProcessRequest.job_args":            message,
	"ChildEnd.response":                  message,
	"Result.aux_state":                   {purpose: State},
	"CheckpointRequest.aux_state":        {purpose: State},
	"Result.response":                    message,
	"Result.job_result":                  message,
	"Reply.response":                     message,
	"NewEvent.payload":                   {purpose: Event},
	"StartCommand.args":                  message,
	"StartCommand.notify_parent_args":    message,
	"NotifyCommand.args":                 message,
	"EnqueueCommand.args":                message,
	"EnqueueCommand.notify_parent_args":  message,
	"StartRunCommand.payload":            message,
	"StartRunCommand.notify_parent_args": message,
	"Progress.details":                   message,
	"JobResult.result":                   message,

	// Jobs.
	"Job.args":                   message,
	"Job.result":                 message,
	"WorkerRun.result":           message,
	"EnqueueRequest.args":        message,
	"UpdateJobRequest.args":      message,
	"FetchResultResponse.result": {Message, resultOrParts}, // one worker or several
	"JobEvent.metadata":          composed,                 // such as the failure of an attempt

	// Crons.
	"StartProcessTarget.args":  message,
	"EnqueueJobTarget.args":    message,
	"NotifyProcessTarget.args": message,

	// Flows. The engine composes these values with the expressions of the template.
	"StartRunRequest.payload":    message,
	"RepeatRunRequest.payload":   message,
	"StepInput.input":            message,
	"CompleteStepRequest.result": message,
	"SkipStepRequest.result":     message,
	"Run.payload":                composed,
	"Run.result":                 composed,
	"Step.input":                 composed,
	"Step.result":                composed,
	"OpenWait.input":             composed,
}

// repeatOf returns the Payload.Repeat for the payloads of m. outer is that of the message that
// contains m. If the engine compares the payloads of a request with those of another request, the
// result identifies the request.
func repeatOf(m proto.Message, outer string) string {
	switch r := m.(type) {
	case *progressorv1.StartRequest:
		return repeatOfKey("start", r.GetIdempotencyKey(), r.GetNamespace(), r.GetProcessId())
	case *progressorv1.CallRequest:
		return repeatOfKey("call", r.GetIdempotencyKey(), r.GetNamespace(), r.GetProcessId())
	case *progressorv1.RepairRequest:
		return repeatOfKey("repair", r.GetIdempotencyKey(), r.GetNamespace(), r.GetProcessId())
	case *progressorv1.StartBulkRequest:
		return repeatOfKey("bulk", r.GetIdempotencyKey(), r.GetNamespace(), "")
	case *progressorv1.StartRunRequest:
		return repeatOfKey("run", r.GetIdempotencyKey(), r.GetNamespace(), r.GetRunId())
	case *progressorv1.RepeatRunRequest:
		return repeatOfKey("repeat", r.GetIdempotencyKey(), r.GetNamespace(), r.GetRunId())
	case *progressorv1.EnqueueRequest:
		if unique := uniqueByArgs(r.GetOptions(), r.GetName()); unique != "" {
			return unique
		}
		return repeatOfKey("job", r.GetIdempotencyKey(), r.GetNamespace(), r.GetJobId())
	case *progressorv1.EnqueueJobTarget:
		return uniqueByArgs(r.GetOptions(), r.GetName())
	case *progressorv1.CompleteStepRequest: // sending the same result again is not an error
		return joinQuoted("step", r.GetNamespace(), r.GetRunId(), r.GetStepId(), r.GetToken())
	}
	return outer
}

// uniqueByArgs returns the Payload.Repeat of a unique job whose key the engine computes from its
// args, and "" for other jobs.
func uniqueByArgs(o *progressorv1.JobOptions, name string) string {
	if o.GetUnique() == nil || o.GetUnique().GetKey() != "" {
		return ""
	}
	return joinQuoted("unique", name)
}

// isStored reports whether a message belongs to a process of the engine itself: a cron, a run, a
// job of a step, or a bulk. The engine writes the states and tasks of these processes, and embeds
// the payloads of users. These messages are not decoded. isStored does not apply to requests to
// processors and workers, which contain no such payloads. Otherwise, anyone who can write to the
// database could turn off decoding by giving a process such an ID.
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

// isReason reports whether the args of a message are the reason of a cancellation, which is not
// encoded.
func isReason(m proto.Message) bool {
	task, ok := m.(*progressorv1.Task)
	return ok && task.GetType() == progressorv1.TaskType_TASK_TYPE_CANCEL
}
