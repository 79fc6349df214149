package durable

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// FlowOption configures Flow.
type FlowOption interface{ setFlow(*flowOptions) }

type flowOptions struct {
	namespace string
	command   *progressorv1.StartRunCommand
}

func (in InOption) setFlow(o *flowOptions) { o.namespace = in.namespace }

type flowOption func(*flowOptions)

func (f flowOption) setFlow(o *flowOptions) { f(o) }

// TemplateVersion sets the template version of a run. The default is the newest one when the run
// starts.
func TemplateVersion(version int32) FlowOption {
	return flowOption(func(o *flowOptions) { o.command.Version = version })
}

// Scope sets what a run is for, such as ("order", "7"). The concurrency policy of the template
// applies to runs with the same scope.
func Scope(scope, id string) FlowOption {
	return flowOption(func(o *flowOptions) { o.command.Scope, o.command.ScopeId = scope, id })
}

// Flow starts a run of a template with the payload as JSON and does not wait for it. The
// transaction that stores this operation starts the run, exactly once. The ID of the run has the
// same form as the ID of a child, such as "A-7/ship~1041", and at most 160 bytes. Runs, jobs and
// children count their names together: the second use of a name is name#2.
//
// The response of Get is the result of the run. If the run has failed or expired, Get returns a
// *StepError with the reason of its failure. The reason is ReasonChildFailed if the run was not
// started, for example because its template does not exist or does not allow the payload. As for
// Child, the namespace must exist, and the setting command_namespaces must allow a namespace other
// than that of the function. If the function returns an error or is cancelled, its runs that have
// not ended are cancelled.
func Flow[Out any](ctx Ctx, name, template string, payload any, opts ...FlowOption) *Future[Out] {
	b := ctx.branch
	full := b.name(kindChild, name)
	o := flowOptions{command: &progressorv1.StartRunCommand{Type: template}}
	for _, opt := range opts {
		opt.setFlow(&o)
	}
	if e, ok := b.owner.journal.find(kindChild, full); ok {
		run := b.recordedChild(e, childKey{Namespace: o.namespace, ProcessID: process.FlowPrefix, Run: runFlow})
		return &Future[Out]{branch: b, name: full, child: run}
	}
	value, err := protoOf(payload)
	if err != nil {
		b.owner.misuse("the payload of run %s: the value %s", full, err)
	}
	o.command.Payload = value
	run := b.owner.newChild(o.namespace, full)
	run.Run = runFlow
	return startRun[Out](b, full, run, o.command)
}

// startRun records a run with a full name, and sends the command that starts it. The process ID of
// run is the ID of the run.
func startRun[Out any](b *branch, full string, run childKey, c *progressorv1.StartRunCommand) *Future[Out] {
	c.Namespace, c.RunId, c.NotifyParentArgs = b.owner.targetOf(run), run.ProcessID, reported(full)
	run.ProcessID = process.FlowPrefix + run.ProcessID
	b.begin(full, run, &progressorv1.Command{Command: &progressorv1.Command_StartRun{StartRun: c}})
	return &Future[Out]{branch: b, name: full, child: run}
}

// protoOf returns a value as a command contains it, or an error that says what is wrong.
func protoOf(v any) (*structpb.Value, error) {
	text, err := encode(v)
	if err != nil {
		return nil, err
	}
	value := &structpb.Value{}
	if err := protojson.Unmarshal(text, value); err != nil {
		return nil, fmt.Errorf("cannot be sent: %w", err)
	}
	return value, nil
}
