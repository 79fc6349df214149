package crons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/crons"
	"github.com/progressor-engine/progressor/wire"
)

const (
	kind   = "cron"
	prefix = process.CronPrefix
)

// Crons keeps and runs crons on one node.
type Crons struct {
	engine  *engine.Engine
	store   *storage.Store
	metrics *metrics
	http    *http.Client
	trimmed time.Time // when the tasks of crons were last looked through, by the collector alone
	newJob  NewJob
	flows   Flows

	retention time.Duration // of the ledger and of the tasks of crons
}

// NewJob makes what is stored of a job that is to be enqueued; path is put before the names of fields in its errors.
type NewJob func(path string, r *progressorv1.EnqueueRequest) (*storage.NewJob, error)

// EnqueueBy says what makes the jobs of crons whose target is enqueue_job. It has to be called before the engine runs; without it such crons are refused.
func (c *Crons) EnqueueBy(newJob NewJob) { c.newJob = newJob }

// Flows starts the runs of crons whose target is start_run, and reads their ends.
type Flows interface {
	// CheckStart refuses a target whose run could not start at a fire. Its errors are *process.InvalidError with paths from the target.
	CheckStart(ctx context.Context, namespace string, t *progressorv1.StartRunTarget, fire flow.Fire) error
	// StartMessage starts a run, whose process is key.
	StartMessage(key process.Key, t *progressorv1.StartRunTarget, fire flow.Fire) (storage.Message, error)
	// CancelMessage asks a run to end.
	CancelMessage(key process.Key, reason string) storage.Message
	// EndOf says how a run ended that has told it; cron.Skipped: it was refused for its scope.
	EndOf(child *progressorv1.ChildEnd) (status cron.Status, detail string, ok bool)
}

// RunBy says what starts the runs of crons whose target is start_run. It has to be called before the engine runs; without it such crons are refused.
func (c *Crons) RunBy(flows Flows) { c.flows = flows }

// New makes the crons of an engine and its store. Their kinds have to be added to it. registerer nil: no metrics.
func New(e *engine.Engine, store *storage.Store, registerer prometheus.Registerer) *Crons {
	return &Crons{engine: e, store: store, metrics: newMetrics(registerer), http: newHTTPClient(), retention: crons.DefaultRetention}
}

// KeepLedger sets how long rows of the ledger, and the tasks of crons, are kept. It has to be called before the engine runs.
func (c *Crons) KeepLedger(retention time.Duration) { c.retention = retention }

// Kinds are what the engine has to know of crons.
func (c *Crons) Kinds() []engine.Kind {
	return []engine.Kind{{
		Name: kind, Processor: processor.Func(c.process),
		Forget: c.forget, Explain: explained,
	}, {Name: runKind, Processor: processor.Func(c.processRun), Timeout: runTimeout}}
}

// trimEvery is the time between two looks through the tasks of all crons.
const trimEvery = 10 * time.Minute

// forget drops what is past its retention, a batch.
func (c *Crons) forget(ctx context.Context) (more bool, err error) {
	if more, err = crons.Forget(ctx, c.store, c.retention); more || err != nil || time.Since(c.trimmed) < trimEvery {
		return more, err
	}
	if more, err = crons.ForgetTasks(ctx, c.store, c.retention); !more && err == nil {
		c.trimmed = time.Now()
	}
	return more, err
}

// ProcessID is the id of a cron's process.
func ProcessID(cronID string) string { return prefix + cronID }

func keyOf(namespace, cronID string) process.Key {
	return process.Key{Namespace: namespace, ProcessID: ProcessID(cronID)}
}

// Create makes a cron. It answers when the cron is stored, with its first timer.
func (c *Crons) Create(ctx context.Context, r *progressorv1.CreateCronRequest, by process.Actor) (*progressorv1.Cron, error) {
	def := r.GetCron()
	if err := c.check(ctx, def, time.Now()); err != nil {
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
	_, err = c.engine.Start(ctx, engine.StartParams{Key: key, Kind: kind, Args: args, Metadata: metadata, Priority: priority, Internal: true})
	if errors.Is(err, process.ErrProcessExists) {
		err = fmt.Errorf("%s: %w", key, process.ErrCronExists)
	}
	if err != nil {
		return nil, refused(err)
	}
	return c.Get(ctx, def.GetNamespace(), def.GetCronId())
}

// priority is that of orders: somebody waits for them.
const priority = math.MinInt32

// check refuses a definition that cannot be kept or cannot run.
func (c *Crons) check(ctx context.Context, def *progressorv1.Cron, created time.Time) error {
	if err := Check(def, created); err != nil {
		return err
	}
	if target := def.GetTarget().GetEnqueueJob(); target != nil {
		if c.newJob == nil {
			return invalid("cron.target.enqueue_job", "this engine serves no jobs")
		}
		if _, err := c.jobMessage(runKey(def, created, 0), target, runMetadata(def.GetCronId(), created, 1, target.GetOptions().GetMetadata())); err != nil {
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
	_, err := c.engine.GetNamespace(ctx, namespace)
	if errors.Is(err, process.ErrNamespaceNotFound) {
		return invalid(field, "there is no namespace %q", namespace)
	}
	return err
}

// checkRun refuses a run that could not start at the next fire.
func (c *Crons) checkRun(ctx context.Context, def *progressorv1.Cron, target *progressorv1.StartRunTarget, created time.Time) error {
	if c.flows == nil {
		return invalid("cron.target.start_run", "this engine serves no flows")
	}
	compiled, err := compile(def, created, "cron.")
	if err != nil {
		return err
	}
	fire, ok := compiled.Schedule.Next(time.Now())
	if !ok {
		fire = time.Now().Truncate(time.Second)
	}
	err = c.flows.CheckStart(ctx, def.GetNamespace(), target, flow.Fire{CronID: def.GetCronId(), Time: fire.UTC(), Attempt: 1})
	if wrong, ok := errors.AsType[*process.InvalidError](err); ok {
		return &process.InvalidError{Field: "cron.target.start_run." + wrong.Field, Message: wrong.Message, TooLarge: wrong.TooLarge}
	}
	return err
}

// args are an order as the task gets it.
func (o *command) args(def *progressorv1.Cron, by process.Actor) ([]byte, error) {
	o.Actor, o.Source = by.Name, by.Source
	if def != nil {
		text, err := proto.Marshal(definition(def))
		if err != nil {
			return nil, err
		}
		o.Cron = text
	}
	return json.Marshal(o)
}

// runCommand sends a command to a cron and returns its result once it is stored.
func (c *Crons) runCommand(ctx context.Context, namespace, cronID string, o *command, def *progressorv1.Cron, by process.Actor) (answered, error) {
	var a answered
	args, err := o.args(def, by)
	if err != nil {
		return a, err
	}
	answer, err := c.engine.Call(ctx, engine.CallParams{Key: keyOf(namespace, cronID), Args: args, Priority: priority, Internal: true})
	if err != nil {
		return a, refused(err)
	}
	if err := json.Unmarshal(answer.Response, &a); err != nil {
		return a, fmt.Errorf("answer of %s: %w", keyOf(namespace, cronID), err)
	}
	return a, nil
}

// refused turns an error of the process into that of the cron.
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

// initWait is how long a read waits for a cron that is being made.
const initWait = 5 * time.Second

// Get reads a cron.
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

// stateOf reads the state of a cron's process.
func stateOf(p *progressorv1.Process) (*state, error) {
	key := process.Key{Namespace: p.GetNamespace(), ProcessID: p.GetProcessId()}
	if p.GetKind() != kind {
		return nil, fmt.Errorf("%s is no cron: %w", key, process.ErrCronNotFound)
	}
	if len(p.GetAuxState()) == 0 {
		return nil, &process.WrongStatusError{Key: key, Status: wire.StatusOf(p.GetStatus()), Reason: "it is not made yet: its namespace is paused or busy"}
	}
	s, err := decode(p.GetAuxState())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return s, nil
}
