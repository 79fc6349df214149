package crons

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/crons"
)

// runKind is the kind of the internal processes that carry out runs. isOwn reports for which
// targets a run has such a process.
const runKind = "run"

// work is the args and the state of a process of kind runKind, as JSON.
type work struct {
	CronID  string        `json:"cron_id"`
	Fire    time.Time     `json:"fire"`
	Attempt int32         `json:"attempt"`
	Rerun   int32         `json:"rerun,omitempty"`   // see attemptID
	Timeout time.Duration `json:"timeout,omitempty"` // timeout of the policy
	Target  []byte        `json:"target"`            // CronTarget in protobuf
}

// outcome is how a run ended. It is the response of the last task of the process. The process is
// COMPLETED even if the run failed.
type outcome struct {
	Status cron.Status `json:"status"`
	Detail string      `json:"detail,omitempty"`
}

func failed(format string, args ...any) outcome {
	return outcome{cron.Failed, fmt.Sprintf(format, args...)}
}

// outcomeOf decodes the outcome that a run has reported.
func outcomeOf(child *progressorv1.ChildEnd) (cron.Status, string, error) {
	var o outcome
	if err := json.Unmarshal(child.GetResponse(), &o); err != nil {
		return cron.Failed, "the run returned no outcome", nil //nolint:nilerr // the text reports it
	}
	return o.Status, o.Detail, nil
}

// explainedRun adds to an explanation how a run has ended. The ledger says this unless it does not
// contain the run, for example because a later attempt has replaced it.
func (c *Crons) explainedRun(ctx context.Context, p *progressorv1.Process, e *explain.State) error {
	w, ok := storedWork(p)
	if !ok || !e.Process.Status.Ended() {
		return nil // an ended run without a valid state was cancelled before it began
	}
	f := &explain.Fire{CronID: w.CronID, Time: w.Fire, Attempt: w.Attempt}
	row, err := crons.Get(ctx, c.store, e.Process.Namespace, w.CronID, w.Fire)
	if err != nil && !errors.Is(err, process.ErrTaskNotFound) {
		return err
	}
	if f.Newest = row.Attempt; row.Attempt == w.Attempt && row.EndedTime != nil {
		f.Status, f.Detail = row.Status, row.Detail
	} else if e.Process.Status == process.StatusCompleted && len(e.Ended) > 0 {
		last := slices.MaxFunc(e.Ended, func(a, b explain.Task) int { return cmp.Compare(a.ID, b.ID) })
		task, err := c.store.GetTask(ctx, e.Process.Key, last.ID)
		if err != nil && !errors.Is(err, process.ErrTaskNotFound) {
			return err
		}
		var o outcome
		if err == nil && json.Unmarshal(task.Response, &o) == nil {
			f.Status, f.Detail = strings.ToUpper(o.Status.String()), o.Detail
		}
	}
	e.Fire = f
	return nil
}

// storedWork returns the state of a run. ok is false if it has no valid state.
func storedWork(p *progressorv1.Process) (w work, ok bool) {
	ok = json.Unmarshal(p.GetAuxState(), &w) == nil
	return w, ok
}

// outgoingArgs returns the args of the process of a run.
func (t *task) outgoingArgs(e outgoing) ([]byte, error) {
	target, err := proto.Marshal(t.state.definition.GetTarget())
	if err != nil {
		return nil, err
	}
	return json.Marshal(work{
		CronID: t.state.definition.GetCronId(), Fire: e.Fire, Attempt: e.Attempt, Rerun: e.Rerun,
		Timeout: t.state.definition.GetPolicy().GetTimeout().AsDuration(), Target: target,
	})
}

// runTimeout returns the step timeout of a run that sends a request. It is the timeout of the
// request plus the time to store its result, and does not depend on the step timeout of the
// namespace. For other runs, runTimeout returns 0.
func runTimeout(c *storage.Claim) time.Duration {
	var w work
	target := &progressorv1.CronTarget{}
	if json.Unmarshal(c.AuxState, &w) != nil || proto.Unmarshal(w.Target, target) != nil || target.GetHttp() == nil {
		return 0
	}
	return w.requestTimeout() + 2*httpMargin
}

// requestTimeout returns the timeout of the request of a run.
func (w *work) requestTimeout() time.Duration {
	if w.Timeout > 0 {
		return w.Timeout
	}
	return httpTimeout
}

// processRun is the processor of runs. The INIT task only sets a timer, because a process in INIT
// cannot be cancelled.
func (c *Crons) processRun(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	switch r.GetType() {
	case progressorv1.TaskType_TASK_TYPE_INIT:
		return processor.Result().AuxState(r.GetArgs()).SetTimerAfter(0).Done()
	case progressorv1.TaskType_TASK_TYPE_CANCEL, progressorv1.TaskType_TASK_TYPE_TIMEOUT:
	default:
		return nil, processor.Fail(processor.ReasonNotHandled, "a run does not accept tasks of type %s",
			r.GetType()).NonRetryable()
	}
	var w work
	target := &progressorv1.CronTarget{}
	err := json.Unmarshal(r.GetProcess().GetAuxState(), &w)
	if err == nil {
		err = proto.Unmarshal(w.Target, target)
	}
	if err != nil {
		return nil, processor.Fail(processor.ReasonBadState, "%w", err).NonRetryable()
	}
	key := process.Key{Namespace: r.GetProcess().GetNamespace(), ProcessID: r.GetProcess().GetProcessId()}
	if r.GetType() == progressorv1.TaskType_TASK_TYPE_CANCEL {
		if err := c.cancelStarted(ctx, key, &w, target.GetStartProcess()); err != nil {
			return nil, err
		}
		return processor.Result().Done()
	}
	var o *outcome
	switch target := target.GetTarget().(type) {
	case *progressorv1.CronTarget_Http:
		began := time.Now()
		if o, err = c.request(ctx, key, &w, target.Http, r.GetDeadline().AsTime()); err == nil {
			c.metrics.requested(c.engine.NamespaceLabel(key.Namespace), o, time.Since(began))
		}
	case *progressorv1.CronTarget_NotifyProcess:
		o, err = c.notify(ctx, key, target.NotifyProcess)
	case *progressorv1.CronTarget_StartProcess:
		o, err = c.start(ctx, key, &w, target.StartProcess)
	default:
		return nil, processor.Fail(processor.ReasonBadState, "unknown cron target %T", target).NonRetryable()
	}
	switch {
	case err != nil:
		return nil, err
	case o == nil: // the run has not ended, or it was asked to end and the CANCEL task runs next
		waited := engine.AttemptOf(ctx).Now().Sub(r.GetProcess().GetCreatedTime().AsTime())
		return processor.Result().SetTimerAfter(sleepAfter(waited)).Done()
	}
	o.Detail = cut(o.Detail)
	return processor.Result().JSONResponse(o).Complete().Done()
}
