package crons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/actor"
	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/crons"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/wire"
)

const (
	kind   = "cron"
	prefix = process.CronPrefix
)

// Crons implements the crons of one node.
type Crons struct {
	engine  *engine.Engine
	store   *storage.Store
	metrics *metrics
	http    *httpClients
	trimmed time.Time // when old tasks of crons were last deleted; used only by the collector
	newJob  NewJob
	flows   Flows

	retention time.Duration // how long the ledger and the tasks of crons are kept
}

// NewJob converts a request to the stored form of a job. path is the prefix of field names in its
// errors.
type NewJob func(path string, r *progressorv1.EnqueueRequest) (*jobs.NewJob, error)

// SetNewJob sets the constructor of the jobs of crons whose target is enqueue_job. Call it before
// the engine runs. Without it, such crons are rejected.
func (c *Crons) SetNewJob(newJob NewJob) { c.newJob = newJob }

// Flows starts the runs of crons whose target is start_run, and reads how they ended.
type Flows interface {
	// CheckStart rejects a target whose run could not start at a fire. Its errors are
	// *process.InvalidError with paths from the target.
	CheckStart(ctx context.Context, namespace string, t *progressorv1.StartRunTarget, fire flow.Fire) error
	// StartMessage returns the message that starts a run. key is the key of its process.
	StartMessage(key process.Key, t *progressorv1.StartRunTarget, fire flow.Fire) (storage.Message, error)
	// CancelMessage returns the message that cancels a run.
	CancelMessage(key process.Key, reason string) storage.Message
	// EndOf returns how a run of a flow ended. The status is cron.Skipped if the run was refused
	// because of its scope.
	EndOf(child *progressorv1.ChildEnd) (status cron.Status, detail string, ok bool)
}

// SetFlows sets the Flows that start the runs of crons whose target is start_run. Call it before
// the engine runs. Without it, such crons are rejected.
func (c *Crons) SetFlows(flows Flows) { c.flows = flows }

// New returns the crons of an engine and its store. The caller must add Kinds to the engine.
// registerer may be nil.
func New(e *engine.Engine, store *storage.Store, registerer prometheus.Registerer) *Crons {
	c := &Crons{engine: e, store: store, metrics: newMetrics(e, registerer), retention: crons.DefaultRetention}
	c.LimitEgress(&remote.Egress{})
	return c
}

// LimitEgress sets the addresses to which HTTP requests may go. Call it before the engine runs.
func (c *Crons) LimitEgress(e *remote.Egress) { c.http = newHTTPClients(e) }

// KeepLedger sets the retention of the ledger and of cron tasks. Call it before the engine runs.
func (c *Crons) KeepLedger(retention time.Duration) { c.retention = retention }

// Kinds returns the kinds of crons and their runs for the engine.
func (c *Crons) Kinds() []engine.Kind {
	return []engine.Kind{{
		Name: kind, Processor: c.actor(),
		Forget: c.forget, Explain: explained, Urgent: &engine.Urgent{Timers: c.claimTimers, Calls: c.claimCalls},
	}, {
		Name: runKind, Processor: processor.Func(c.processRun), Timeout: runTimeout, Explain: c.explainedRun,
	}}
}

// claimTimers claims due timers of crons. They need no slot, because a decision takes milliseconds,
// and a cron that waited for a slot would fire late.
func (c *Crons) claimTimers(ctx context.Context, limits []storage.ClaimLimit) ([]storage.Claim, error) {
	return crons.ClaimTimers(ctx, c.store, limits)
}

// claimCalls claims the other tasks of crons.
func (c *Crons) claimCalls(ctx context.Context, limits []storage.ClaimLimit) ([]storage.Claim, error) {
	return crons.ClaimCalls(ctx, c.store, limits)
}

// trimEvery is the time between two passes over the tasks of all crons.
const trimEvery = 10 * time.Minute

// forget deletes a batch of rows and tasks that are past their retention.
func (c *Crons) forget(ctx context.Context) (more bool, err error) {
	if more, err = crons.Forget(ctx, c.store, c.retention); more || err != nil || time.Since(c.trimmed) < trimEvery {
		return more, err
	}
	if more, err = crons.ForgetTasks(ctx, c.store, c.retention); !more && err == nil {
		c.trimmed = time.Now()
	}
	return more, err
}

// ProcessID returns the ID of a cron's process.
func ProcessID(cronID string) string { return prefix + cronID }

func keyOf(namespace, cronID string) process.Key {
	return process.Key{Namespace: namespace, ProcessID: ProcessID(cronID)}
}

// Create creates a cron. It returns when the cron and its first timer are stored.
func (c *Crons) Create(
	ctx context.Context, r *progressorv1.CreateCronRequest, by process.Actor,
) (*progressorv1.Cron, error) {
	def := r.GetCron()
	if err := c.check(ctx, def, time.Now()); err != nil {
		return nil, err
	}
	def, err := c.sealed(ctx, def)
	if err != nil {
		return nil, err
	}
	if err := keepHeaders(def, nil); err != nil {
		return nil, err
	}
	o := &command{Method: methodCreate, Paused: def.GetPaused(), Note: def.GetPauseNote()}
	args, err := o.args(def, by)
	if err != nil {
		return nil, err
	}
	metadata, err := wire.JSON(def.GetMetadata())
	if err != nil {
		return nil, err
	}
	key := keyOf(def.GetNamespace(), def.GetCronId())
	_, err = c.engine.Start(ctx, engine.StartParams{
		Key: key, Kind: kind, Args: args, Metadata: metadata, Priority: actor.Priority, Internal: true,
	})
	if errors.Is(err, process.ErrProcessExists) {
		err = fmt.Errorf("%s: %w", key, process.ErrCronExists)
	}
	if err != nil {
		return nil, refused(err)
	}
	return c.Get(ctx, def.GetNamespace(), def.GetCronId())
}

// check rejects a definition that cannot be stored or cannot run.
func (c *Crons) check(ctx context.Context, def *progressorv1.Cron, created time.Time) error {
	if err := Check(def, created); err != nil {
		return err
	}
	if target := def.GetTarget().GetEnqueueJob(); target != nil {
		if c.newJob == nil {
			return invalid("cron.target.enqueue_job", "this engine does not serve jobs")
		}
		if _, err := c.jobMessage(runKey(def, created, 0), target,
			runMetadata(def.GetCronId(), created, 1, target.GetOptions().GetMetadata())); err != nil {
			return err
		}
	}
	if target := def.GetTarget().GetStartRun(); target != nil {
		return c.checkRun(ctx, def, target, created)
	}
	namespace, field := namespaceOf(def.GetTarget())
	if namespace == "" {
		return nil
	}
	err := c.engine.CheckNamespace(ctx, namespace)
	if errors.Is(err, process.ErrNamespaceNotFound) {
		return invalid(field, "there is no namespace %q", namespace)
	}
	if errors.Is(err, process.ErrNamespaceDeleting) {
		return invalid(field, "namespace %q is being deleted", namespace)
	}
	return err
}

// checkRun rejects a target whose run could not start at the next fire.
func (c *Crons) checkRun(
	ctx context.Context, def *progressorv1.Cron, target *progressorv1.StartRunTarget, created time.Time,
) error {
	if c.flows == nil {
		return invalid("cron.target.start_run", "this engine does not serve flows")
	}
	compiled, err := compile(def, created, "cron.")
	if err != nil {
		return err
	}
	fire, ok := compiled.Schedule.Next(time.Now())
	if !ok {
		fire = time.Now().Truncate(time.Second)
	}
	err = c.flows.CheckStart(ctx, def.GetNamespace(), target, flow.Fire{
		CronID: def.GetCronId(), Time: fire.UTC(), Attempt: 1,
	})
	if wrong, ok := errors.AsType[*process.InvalidError](err); ok {
		return &process.InvalidError{
			Field: "cron.target.start_run." + wrong.Field, Message: wrong.Message, TooLarge: wrong.TooLarge,
		}
	}
	return err
}

// args encodes a command for its task.
func (o *command) args(def *progressorv1.Cron, by process.Actor) ([]byte, error) {
	o.Actor, o.Source, o.RequestID = by.Name, by.Source, by.RequestID
	if def != nil {
		text, err := proto.Marshal(definition(def))
		if err != nil {
			return nil, err
		}
		o.Cron = text
	}
	return json.Marshal(o)
}

// runCommand sends a command to a cron, and returns the result when it is stored.
func (c *Crons) runCommand(
	ctx context.Context, namespace, cronID string, o *command, def *progressorv1.Cron, by process.Actor,
) (answered, error) {
	args, err := o.args(def, by)
	if err != nil {
		return answered{}, err
	}
	a, err := actor.Call[answered](ctx, c.engine, keyOf(namespace, cronID), args)
	return a, refused(err)
}

// refused converts an error of the process to an error of the cron.
func refused(err error) error {
	if errors.Is(err, process.ErrProcessNotFound) {
		return fmt.Errorf("%w: %w", process.ErrCronNotFound, err)
	}
	var task *engine.TaskError
	if !errors.As(err, &task) || task.Rejection == nil {
		return err
	}
	switch no := task.Rejection; no.GetReason() {
	case rejectedStale:
		return fmt.Errorf("%s: %w", task.Key, process.ErrStaleEtag)
	case rejectedInvalid:
		return &process.InvalidError{Field: string(no.GetDetails()), Message: no.GetMessage()}
	case rejectedStatus:
		return &process.WrongStatusError{Key: task.Key, Status: process.StatusRunning, Reason: no.GetMessage()}
	case rejectedPaused:
		return fmt.Errorf("%s: %w", task.Key, process.ErrNamespacePaused)
	case rejectedFull:
		return fmt.Errorf("%s: %w", no.GetMessage(), process.ErrOverloaded)
	}
	return err
}

// initWait is how long a read waits for a cron that is being created.
const initWait = 5 * time.Second

// Get returns a cron.
func (c *Crons) Get(ctx context.Context, namespace, cronID string) (*progressorv1.Cron, error) {
	s, err := c.read(ctx, namespace, cronID)
	if err != nil {
		return nil, err
	}
	return s.message(time.Now())
}

func (c *Crons) read(ctx context.Context, namespace, cronID string) (*state, error) {
	key := keyOf(namespace, cronID)
	p, err := c.engine.GetProcess(ctx, key, &progressorv1.HistoryRange{Limit: new(int32)}, initWait)
	if err != nil {
		return nil, refused(err)
	}
	return stateOf(p)
}

// stateOf decodes the state of a cron's process.
func stateOf(p *progressorv1.Process) (*state, error) {
	key := process.Key{Namespace: p.GetNamespace(), ProcessID: p.GetProcessId()}
	if p.GetKind() != kind {
		return nil, fmt.Errorf("%s is not a cron: %w", key, process.ErrCronNotFound)
	}
	if len(p.GetAuxState()) == 0 {
		return nil, &process.WrongStatusError{
			Key: key, Status: wire.StatusOf(p.GetStatus()),
			Reason: "the cron is not created yet: its namespace is paused or busy",
		}
	}
	s, err := decode(p.GetAuxState(), json.Unmarshal)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return s, nil
}
