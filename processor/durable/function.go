package durable

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Function is a processor.Processor whose processes run a Go function. It is safe for concurrent
// use.
type Function[In, Out any] struct{ program program }

// program is a function without its types.
type program struct {
	name     string
	versions Versions
	check    func(req *progressorv1.ProcessRequest) error // checks the args of a start
	call     func(ctx Ctx, input json.RawMessage) (json.RawMessage, error)
}

// Option configures a Function.
type Option interface{ apply(p *program) }

// Versions contains the current version of each change that Version asks for.
type Versions map[string]int

func (v Versions) apply(p *program) { p.versions = v }

// Func returns a processor that runs f for each process. The args of a start are In as JSON without
// unknown fields, and Out is encoded as JSON: it is the response of the last task, and the value of
// the last event.
//
// If f returns an error, the completed steps that have an Undo are undone, newest first. Then the
// process is COMPLETED if processor.Reject made the error, and in ERROR otherwise. But a rejection
// in the INIT task, before any step has run, rejects the start and removes the process. A repair of
// a process that ended in ERROR starts f again, with a new history. A repair after any other
// failure, such as a panic, continues f where it stopped.
//
// A request that continues f in memory has no history (see processor.KeptOf for where f can stay in
// memory). A processor that wraps this one must not depend on the history.
func Func[In, Out any](name string, f func(ctx Ctx, in In) (Out, error), opts ...Option) *Function[In, Out] {
	p := program{name: name, check: func(req *progressorv1.ProcessRequest) error {
		_, err := processor.ArgsOf[In](req)
		return err
	}}
	p.call = func(ctx Ctx, input json.RawMessage) (json.RawMessage, error) {
		value, err := f(ctx, decode[In](ctx.branch, "the input of the function", input))
		if err != nil {
			return nil, err
		}
		text, err := encode(value)
		if err != nil {
			return nil, processor.Fail(ReasonBadValue, "the value that function %s returned %w", name, err)
		}
		return text, nil
	}
	for _, opt := range opts {
		opt.apply(&p)
	}
	return &Function[In, Out]{program: p}
}

// Process runs the function as far as it can without another task.
func (f *Function[In, Out]) Process(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (response *progressorv1.ProcessResponse, err error) {
	if processor.IsCheck(req) {
		return check(ctx, &f.program, req)
	}
	t, err := newTask(ctx, &f.program, req)
	if err != nil {
		if none := processor.KeptOf(ctx).NoHistory(); none != nil {
			return nil, none
		}
		if isRejectable(req.GetType()) {
			return nil, processor.Reject(ReasonJournal, "%w", err)
		}
		return nil, processor.Fail(ReasonJournal, "%w", err).NonRetryable()
	}
	defer func() { t.end(response, err) }()
	return t.process()
}

func isRejectable(t progressorv1.TaskType) bool {
	return t != progressorv1.TaskType_TASK_TYPE_TIMEOUT && t != progressorv1.TaskType_TASK_TYPE_CANCEL
}

// restart is the error of Restart.
type restart struct{ input any }

func (r *restart) Error() string { return "the function restarts" }

// Restart returns an error that makes the function start again with this input, when the function
// returns it. The process keeps its ID, state, metadata and the calls that the function has not
// taken yet. Everything else begins again, with a new history: no step is undone, timers are
// stopped, and names are free again. A function that runs for years restarts from time to time,
// because a replay reads the whole history.
//
//	return Receipt{}, durable.Restart(next)
func Restart(input any) error { return &restart{input} }

func restartOf(err error) (*restart, bool) { return errors.AsType[*restart](err) }
