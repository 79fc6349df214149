package durable

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// CallOption configures Calls.
type CallOption[In, Out any] func(*acceptor[In, Out])

type acceptor[In, Out any] struct{ accept func(In) (Out, error) }

// Accept sets f, which answers each call. f runs in the task of the call, before the durable
// function continues. If f returns an error, or a response that is too large or is not JSON, the
// call is rejected and nothing is stored. If a rejection is larger than about 1 MiB, its details
// are omitted. f may read the variables of the durable function, because that function waits while
// f runs. f must not change them, because f does not run in a replay.
func Accept[In, Out any](f func(In) (Out, error)) CallOption[In, Out] {
	return func(a *acceptor[In, Out]) { a.accept = f }
}

// Queue contains the calls that were accepted, in order.
type Queue[In any] struct {
	branch *branch
	name   string
	taken  int
}

// queue is a Queue without its type.
type queue struct {
	accept   func(args json.RawMessage) (response []byte, err error)
	deferred bool // the function replies itself
	taken    *int
}

// Calls opens a queue of calls. From now on, clients may call the process with the name and the
// args, for example {"pay":{"amount":200}}. The call is rejected if it arrives before Calls or
// after the function has ended. Therefore, open the queue early. In a branch of Each, the name of
// the call includes the scope, as in "parcel[1]/pay".
//
// Without Accept, each call whose args can be decoded is accepted, with an empty response.
func Calls[In, Out any](ctx Ctx, name string, opts ...CallOption[In, Out]) *Queue[In] {
	var a acceptor[In, Out]
	for _, opt := range opts {
		opt(&a)
	}
	b := ctx.branch
	q := &Queue[In]{branch: b, name: b.name(kindCall, name)}
	b.verify()
	b.owner.queues[q.name] = &queue{taken: &q.taken, accept: func(args json.RawMessage) ([]byte, error) {
		in, err := processor.ArgsOf[In](&progressorv1.ProcessRequest{
			Type: progressorv1.TaskType_TASK_TYPE_CALL, Args: args,
		})
		if err != nil {
			return nil, err
		}
		if a.accept == nil {
			return nil, nil
		}
		out, err := a.accept(in)
		if err != nil {
			return nil, rejection(err)
		}
		text, err := encode(out)
		if err != nil {
			return nil, processor.Reject(ReasonBadValue, "the response of call %s %w", q.name, err)
		}
		return text, nil
	}}
	return q
}

// rejection converts an error from Accept or Reject to a RejectionError.
func rejection(err error) *processor.RejectionError {
	if r, ok := errors.AsType[*processor.RejectionError](err); ok {
		return bounded(r)
	}
	return processor.Reject(processor.ReasonError, "%w", err)
}

// Next waits for the next call and returns its args.
func (q *Queue[In]) Next() In {
	in, _ := q.next()
	return in
}

func (q *Queue[In]) next() (in In, e *entry) {
	b := q.branch
	b.enter()
	b.await(&wait{until: []entryKey{{kindCall, q.name}}, ready: func() (ok bool) {
		_, e, ok = b.owner.journal.call(q.name, q.taken)
		return ok
	}})
	q.taken++
	return decode[In](b, "the args of call "+q.name, e.Value), e
}

func (q *Queue[In]) source() source {
	until := entryKey{kindCall, q.name}
	return source{branch: q.branch, id: "call " + q.name, until: until, position: func() (int, bool) {
		at, _, ok := q.branch.owner.journal.call(q.name, q.taken)
		return at, ok
	}}
}

// tooManyCalls reports whether q must not accept another call. The calls that the function has not
// taken are limited (maxWaiting, maxNewBytes), because a restart must keep them. A queue of
// Requests also has a limit for its process: the number of open requests (process.MaxOpenTasks).
func (r *run) tooManyCalls(q *queue) bool {
	if q.deferred && len(r.openRequests(nil)) >= process.MaxOpenTasks {
		return true
	}
	bytes, calls := 0, r.untakenCalls()
	for _, e := range calls {
		bytes += len(e.Value)
	}
	return len(calls) >= maxWaiting || bytes >= maxNewBytes
}

// untakenCalls returns the entries of the calls that the function has not taken, in order.
func (r *run) untakenCalls() []entry {
	var untaken []int
	for name, all := range r.journal.calls {
		if q := r.queues[name]; q != nil {
			all = all[min(*q.taken, len(all)):]
		}
		untaken = append(untaken, all...)
	}
	slices.Sort(untaken)
	var kept []entry
	for _, at := range untaken {
		kept = append(kept, r.journal.entries[at])
	}
	return kept
}
