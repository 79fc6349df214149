package durable

import (
	"google.golang.org/protobuf/proto"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// JobOption configures Job.
type JobOption interface{ setJob(*jobOptions) }

type jobOptions struct {
	namespace string
	command   *progressorv1.EnqueueCommand
}

func (in InOption) setJob(o *jobOptions) { o.namespace = in.namespace }

type jobOption func(*jobOptions)

func (f jobOption) setJob(o *jobOptions) { f(o) }

// JobName sets the name by which workers find a job. The default is the name that is passed to Job.
func JobName(name string) JobOption {
	return jobOption(func(o *jobOptions) { o.command.Name = name })
}

// JobOptions sets the options of a job, such as priority, timeout and max_retry. unique is not
// supported: each job of a function has its own ID. The result is kept in any case.
func JobOptions(options *progressorv1.JobOptions) JobOption {
	return jobOption(func(o *jobOptions) { o.command.Options = proto.CloneOf(options) })
}

// Job enqueues a job with the args as JSON and does not wait for it. The workers or the processor
// of its namespace run it, in any language. It is enqueued exactly once, in the transaction that
// stores the call of Job. The ID of the job has the same form as the ID of a child, such as
// "A-7/resize~1041". Jobs, runs and children count their names together: the second use of a name
// is name#2.
//
// The response of Get is the result of the job. It is the zero value if several workers run the job
// (options.workers). As for Child, the namespace must exist, and the setting command_namespaces
// must allow a namespace other than that of the function. If the job fails or is cancelled, Get
// returns a *StepError. If the function returns an error or is cancelled, its jobs that still run
// are cancelled.
func Job[Out any](ctx Ctx, name string, args any, opts ...JobOption) *Future[Out] {
	b := ctx.branch
	full := b.name(kindChild, name)
	o := jobOptions{command: &progressorv1.EnqueueCommand{Name: name}}
	for _, opt := range opts {
		opt.setJob(&o)
	}
	if e, ok := b.owner.journal.find(kindChild, full); ok {
		job := b.recordedChild(e, childKey{Namespace: o.namespace, IsJob: true})
		return &Future[Out]{branch: b, name: full, child: job}
	}
	value, err := protoOf(args)
	if err != nil {
		b.owner.misuse("the args of job %s: the value %s", full, err)
	}
	o.command.Args = value
	job := b.owner.newChild(o.namespace, full)
	job.IsJob = true
	if o.command.Options == nil {
		o.command.Options = &progressorv1.JobOptions{}
	}
	o.command.Options.KeepResult = true // the end of the job that the parent receives contains it
	o.command.Namespace, o.command.JobId = b.owner.targetOf(job), job.ProcessID
	o.command.NotifyParentArgs = reported(full)
	b.begin(full, job, &progressorv1.Command{Command: &progressorv1.Command_Enqueue{Enqueue: o.command}})
	return &Future[Out]{branch: b, name: full, child: job}
}
