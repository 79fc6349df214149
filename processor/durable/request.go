package durable

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// RequestQueue contains the calls that wait for a reply of the function, in order.
type RequestQueue[In, Out any] struct{ queue *Queue[In] }

// Request is a call whose caller waits for the reply of the function.
type Request[In, Out any] struct {
	Args In

	branch   *branch
	name     string
	task     int64 // 0 if no caller waits: an older build has accepted the call with Calls
	answered bool
}

// reply is what a result sends to the caller of a request.
type reply struct {
	task      int64
	response  []byte
	rejection *processor.RejectionError
}

// Requests opens a queue of calls, as Calls does, but the function answers them itself: after any
// steps, timers and children, and hours later if necessary. Each call whose args can be decoded is
// accepted, and its caller waits for Reply or Reject. A caller whose timeout has ended gets the
// response with AwaitTask, or if it repeats the call with the same idempotency key.
//
//	asks := durable.Requests[Question, Answer](ctx, "ask")
//	ask := asks.Next()
//	answer, err := durable.Step(ctx, "think", think(ask.Args))
//	if err != nil {
//		ask.Reject(err)
//	} else {
//		ask.Reply(answer)
//	}
//
// At most 100 requests can be open. If the function ends or restarts without a reply, the caller
// gets the rejection "not_answered". If the process fails or is cancelled or removed, its requests
// are cancelled, and later replies to them do nothing.
func Requests[In, Out any](ctx Ctx, name string) *RequestQueue[In, Out] {
	q := Calls[In, Out](ctx, name)
	ctx.branch.owner.queues[q.name].deferred = true
	return &RequestQueue[In, Out]{q}
}

// Next waits for the next request.
func (q *RequestQueue[In, Out]) Next() *Request[In, Out] {
	b := q.queue.branch
	args, e := q.queue.next()
	return &Request[In, Out]{Args: args, branch: b, name: q.queue.name, task: e.Task}
}

func (q *RequestQueue[In, Out]) source() source { return q.queue.source() }

// Reply sends a response to the caller. Each request can be answered once, in any branch of Each.
func (r *Request[In, Out]) Reply(response Out) {
	text, err := encode(response)
	if err != nil {
		r.branch.owner.current.enter()
		r.branch.owner.misuse("the reply to call %s: the value %s", r.name, err)
	}
	r.send(entry{Value: text}, nil)
}

// Reject sends a rejection to the caller. The reason is that of err if processor.Reject made it,
// and "error" otherwise. If the rejection is larger than about 1 MiB, its details are omitted, and
// the message says so. The function continues.
func (r *Request[In, Out]) Reject(err error) {
	rejected := rejection(err)
	refusal := &StepError{
		Reason: cut(rejected.Rejection.GetReason()), Message: cut(rejected.Rejection.GetMessage()), Rejected: true,
	}
	r.send(entry{Error: refusal}, rejected)
}

// send records a reply and adds it to the result that stores it, unless the journal already
// contains it. A function that has failed or is cancelled does not continue here.
func (r *Request[In, Out]) send(e entry, rejected *processor.RejectionError) {
	b := r.branch.owner.current // any branch may answer
	b.enter()
	if r.answered {
		b.owner.misuse("the call %s is already answered", r.name)
	}
	r.answered = true
	owner := b.owner
	if r.task == 0 || owner.journal.hasReply(r.task) {
		return
	}
	b.await(&wait{flush: true, ready: func() bool {
		return owner.request.GetType() != progressorv1.TaskType_TASK_TYPE_CANCEL && owner.journal.ended() == nil &&
			len(owner.effects.replies) < process.MaxReplies && !owner.journal.isFull()
	}})
	e.Kind, e.Name, e.Task = kindReply, r.name, r.task
	b.record(e)
	owner.journal.bytes += len(e.Value)
	if rejected != nil {
		owner.journal.bytes += proto.Size(rejected.Rejection)
	}
	owner.effects.replies = append(owner.effects.replies, reply{r.task, e.Value, rejected})
}

// openRequests returns the tasks of the requests without a reply, except those in kept.
func (r *run) openRequests(kept []entry) (tasks []int64) {
	untaken := map[int64]bool{}
	for _, e := range kept {
		untaken[e.Task] = true
	}
	for _, e := range r.journal.entries {
		if e.Kind == kindCall && e.Task > 0 && !r.journal.hasReply(e.Task) && !untaken[e.Task] {
			tasks = append(tasks, e.Task)
		}
	}
	return tasks
}

// hasOpenRequest reports whether a call with this name waits for a reply.
func (r *run) hasOpenRequest(name string) bool {
	return slices.ContainsFunc(r.journal.entries, func(e entry) bool {
		return e.Kind == kindCall && e.Name == name && e.Task > 0 && !r.journal.hasReply(e.Task)
	})
}

// rejectOpen rejects the requests without a reply when the function ends or restarts, except those
// that a restart keeps.
func (t *task) rejectOpen(kept []entry) {
	for _, id := range t.openRequests(kept) {
		t.effects.replies = append(t.effects.replies, reply{
			task: id, rejection: processor.Reject(ReasonNotAnswered, "the function has ended without a reply"),
		})
	}
}

// addTo adds a reply to a result.
func (r reply) addTo(result *processor.ResultBuilder) {
	if r.rejection != nil {
		result.RejectTask(r.task, r.rejection)
	} else {
		result.Reply(r.task, r.response)
	}
}

// hasReply reports whether the journal contains a reply to the request of a task.
func (j *journal) hasReply(task int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.replies[task]
}
