package crons

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// isOwn reports whether the run of a cron is an internal process in the namespace of the cron. This
// is the case for the targets http and notify_process, and for start_process with RUN_END_INIT,
// where the run ends before the process of the user.
func isOwn(c *progressorv1.Cron) bool {
	if c.GetTarget().GetEnqueueJob() != nil || c.GetTarget().GetStartRun() != nil {
		return false
	}
	target := c.GetTarget().GetStartProcess()
	return target == nil || target.GetRunEnd() == progressorv1.StartProcessTarget_RUN_END_INIT
}

// fireID returns the ID of a fire, and of the process, job or run of a flow that it starts.
func fireID(cronID string, fire time.Time) string {
	return cronID + "/" + fire.UTC().Format(time.RFC3339Nano)
}

// attemptID returns the ID of a run. rerun is the number of the attempt if an earlier attempt of
// the same fire had a run. Otherwise it is 0.
func attemptID(cronID string, fire time.Time, rerun int32) string {
	if rerun == 0 {
		return fireID(cronID, fire)
	}
	return fireID(cronID, fire) + "/" + strconv.Itoa(int(rerun))
}

// runKey returns the key of the process whose end is the end of a run.
func runKey(c *progressorv1.Cron, fire time.Time, rerun int32) process.Key {
	id := attemptID(c.GetCronId(), fire, rerun)
	if isOwn(c) {
		return process.Key{Namespace: c.GetNamespace(), ProcessID: process.CronRunPrefix + id}
	}
	if c.GetTarget().GetStartRun() != nil {
		return process.Key{Namespace: c.GetNamespace(), ProcessID: process.FlowPrefix + id}
	}
	namespace, _ := namespaceOf(c.GetTarget())
	return process.Key{Namespace: cmp.Or(namespace, c.GetNamespace()), ProcessID: id}
}

// runID returns the ID of the process, job or run of a flow that users see as the run.
func runID(c *progressorv1.Cron, fire time.Time, rerun int32) string {
	if c.GetTarget().GetStartProcess() != nil {
		return attemptID(c.GetCronId(), fire, rerun)
	}
	return runKey(c, fire, rerun).ProcessID
}

// The metadata fields that describe the fire of a run.
const (
	metadataCronID   = "progressor.cron_id"
	metadataFireTime = "progressor.fire_time"
	metadataAttempt  = "progressor.attempt"
)

// startOf returns the message that starts a run.
func (t *task) startOf(key process.Key, e outgoing) (storage.Message, error) {
	m := storage.Message{Kind: storage.MessageStart, Target: key}
	c, metadata := t.state.definition, (*structpb.Struct)(nil)
	notifyArgs, err := json.Marshal(runEndArgs{Fire: e.Fire, Rerun: e.Rerun})
	if target := c.GetTarget().GetEnqueueJob(); target != nil && err == nil {
		m, err = t.crons.jobMessage(key, target,
			runMetadata(c.GetCronId(), e.Fire, e.Attempt, target.GetOptions().GetMetadata()))
		m.NotifyParentArgs = notifyArgs
		return m, err
	}
	if target := c.GetTarget().GetStartRun(); target != nil && err == nil {
		if m, err = t.crons.flows.StartMessage(key, target, flow.Fire{
			CronID: c.GetCronId(), Time: e.Fire.UTC(), Attempt: e.Attempt,
		}); err != nil {
			return m, err
		}
		m.NotifyParentArgs = notifyArgs
		m.Metadata, err = wire.JSON(runMetadata(c.GetCronId(), e.Fire, e.Attempt, target.GetMetadata()))
		return m, err
	}
	if m.NotifyParentArgs = notifyArgs; err != nil {
		return m, err
	}
	if isOwn(c) {
		m.Args, err = t.outgoingArgs(e)
	} else {
		m.Args, metadata = c.GetTarget().GetStartProcess().GetArgs(), c.GetTarget().GetStartProcess().GetMetadata()
	}
	if err != nil {
		return m, err
	}
	if len(metadata.GetFields()) == 0 {
		m.Metadata, err = json.Marshal(fireMetadata{c.GetCronId(), e.Fire.UTC(), e.Attempt})
	} else {
		m.Metadata, err = wire.JSON(runMetadata(c.GetCronId(), e.Fire, e.Attempt, metadata))
	}
	return m, err
}

// jobMessage returns the message that enqueues the job of a run.
func (c *Crons) jobMessage(
	key process.Key, target *progressorv1.EnqueueJobTarget, metadata *structpb.Struct,
) (storage.Message, error) {
	options := &progressorv1.JobOptions{}
	proto.Merge(options, target.GetOptions())
	options.Metadata = metadata
	job, err := c.newJob("cron.target.enqueue_job.", &progressorv1.EnqueueRequest{
		Namespace: key.Namespace, JobId: key.ProcessID, Name: target.GetName(), Args: target.GetArgs(),
		Options: options,
	})
	if err != nil {
		return storage.Message{}, err
	}
	return job.Message()
}

// fireMetadata is runMetadata for a target without metadata. It avoids a Struct, which took a tenth
// of the time of a fire.
type fireMetadata struct {
	CronID  string    `json:"progressor.cron_id"`
	Fire    time.Time `json:"progressor.fire_time"`
	Attempt int32     `json:"progressor.attempt"`
}

// runMetadata returns the metadata of a run: the metadata of the target, and the fields of the
// fire.
func runMetadata(cronID string, fire time.Time, attempt int32, more *structpb.Struct) *structpb.Struct {
	fields := map[string]*structpb.Value{}
	maps.Copy(fields, more.GetFields())
	fields[metadataCronID] = structpb.NewStringValue(cronID)
	fields[metadataFireTime] = structpb.NewStringValue(fire.UTC().Format(time.RFC3339Nano))
	fields[metadataAttempt] = structpb.NewNumberValue(float64(attempt))
	return &structpb.Struct{Fields: fields}
}

// endOf returns how a run ended. The status is Skipped if the run was refused. For a process in
// ERROR, endOf reads the failure. The status is Timeout if the last failure is a timeout of the
// engine.
func (c *Crons) endOf(ctx context.Context, child *progressorv1.ChildEnd) (cron.Status, string, error) {
	if strings.HasPrefix(child.GetProcessId(), process.FlowPrefix) {
		if status, detail, ok := c.flows.EndOf(child); ok {
			return status, detail, nil
		}
	}
	switch child.GetStatus() {
	case progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED:
		if strings.HasPrefix(child.GetProcessId(), process.CronRunPrefix) {
			return outcomeOf(child)
		}
		return cron.Success, child.GetDetail(), nil
	case progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED:
		return cron.Cancelled, child.GetDetail(), nil
	case progressorv1.ProcessStatus_PROCESS_STATUS_ERROR:
	default: // the process was removed, or could not be started
		if child.GetDetail() == "" {
			return cron.Failed, "the process was removed", nil
		}
		return cron.Failed, child.GetDetail(), nil
	}
	key := process.Key{Namespace: child.GetNamespace(), ProcessID: child.GetProcessId()}
	p, err := c.engine.GetProcess(ctx, key, &progressorv1.HistoryRange{Limit: new(int32)}, 0)
	if err == nil && p.GetCorruptedBy() != 0 {
		var task *progressorv1.Task
		task, err = c.engine.AwaitTask(ctx, engine.AwaitParams{Key: key, TaskID: p.GetCorruptedBy()})
		if err == nil && timedOut(task.GetFailure()) {
			return cron.Timeout, child.GetDetail(), nil
		}
	}
	if err != nil && !errors.Is(err, process.ErrProcessNotFound) && !errors.Is(err, process.ErrTaskNotFound) {
		return 0, "", err
	}
	return cron.Failed, child.GetDetail(), nil
}

// timedOut reports whether a failure is a timeout, either of an attempt or of the wait for the
// first attempt.
func timedOut(f *progressorv1.Failure) bool {
	return f.GetReason() == process.ReasonTimeout || f.GetReason() == process.ReasonStartDeadline
}

func cut(s string) string { return wire.Plain(s[:min(len(s), maxTextBytes)]) }
