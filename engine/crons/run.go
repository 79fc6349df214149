package crons

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// runID is the id of the process that is a run: the cron's and the fire time's. Where the target is no process of a user, the run is one
// of the engine's own, in the namespace of the cron.
func runID(c *progressorv1.Cron, fire time.Time) string {
	id := c.GetCronId() + "/" + fire.UTC().Format(time.RFC3339Nano)
	if c.GetTarget().GetStartProcess() == nil {
		return runPrefix + id
	}
	return id
}

// The metadata by which a run knows its fire.
const (
	metadataCronID   = "progressor.cron_id"
	metadataFireTime = "progressor.fire_time"
	metadataAttempt  = "progressor.attempt"
)

// startOf starts a run.
func (t *task) startOf(key process.Key, e errand) (storage.Message, error) {
	m := storage.Message{Kind: storage.MessageStart, Target: key}
	var err error
	if m.NotifyParentArgs, err = json.Marshal(told{e.Fire}); err != nil {
		return m, err
	}
	target := t.state.definition.GetTarget().GetStartProcess()
	if target == nil {
		if m.Args, err = t.errandArgs(e); err != nil {
			return m, err
		}
	} else {
		m.Args = target.GetArgs()
	}
	m.Metadata, err = wire.JSON(runMetadata(t.state.definition, e, target.GetMetadata()))
	return m, err
}

// runMetadata is the metadata of a run: what the target says, and its fire.
func runMetadata(c *progressorv1.Cron, e errand, more *structpb.Struct) *structpb.Struct {
	fields := map[string]*structpb.Value{}
	maps.Copy(fields, more.GetFields())
	fields[metadataCronID] = structpb.NewStringValue(c.GetCronId())
	fields[metadataFireTime] = structpb.NewStringValue(e.Fire.UTC().Format(time.RFC3339Nano))
	fields[metadataAttempt] = structpb.NewNumberValue(float64(e.Attempt))
	return &structpb.Struct{Fields: fields}
}

// endOf says how a run ended. One that broke is asked why: it is TIMEOUT where its last failure is the engine's.
func (c *Crons) endOf(ctx context.Context, child *progressorv1.ChildEnd) (cron.Status, string, error) {
	switch child.GetStatus() {
	case progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED:
		if strings.HasPrefix(child.GetProcessId(), runPrefix) {
			return outcomeOf(child)
		}
		return cron.Success, child.GetDetail(), nil
	case progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED:
		return cron.Cancelled, child.GetDetail(), nil
	case progressorv1.ProcessStatus_PROCESS_STATUS_ERROR:
	default: // it was removed, or could not be started
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
		if err == nil && task.GetFailure().GetReason() == process.ReasonTimeout {
			return cron.Timeout, child.GetDetail(), nil
		}
	}
	if err != nil && !errors.Is(err, process.ErrProcessNotFound) && !errors.Is(err, process.ErrTaskNotFound) {
		return 0, "", err
	}
	return cron.Failed, child.GetDetail(), nil
}

func cut(s string) string { return wire.Plain(s[:min(len(s), maxTextBytes)]) }
