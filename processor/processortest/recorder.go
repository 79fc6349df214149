package processortest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Recorder is a test double of a processor. It records every request, returns scripted answers, and
// can hold answers back. It is safe for concurrent use.
type Recorder struct {
	mu       sync.Mutex
	answer   processor.Func
	script   []processor.Func
	requests []*progressorv1.ProcessRequest
	taken    int           // how many requests Next has returned
	changed  chan struct{} // closed and replaced when a request arrives or ends
	gate     chan struct{} // nil unless requests are held back; closed by release
	running  map[process.Key]int
	overlaps []process.Key
}

// NewRecorder returns a recorder that answers with this function after its script is used up. If
// answer is nil, the answer is a result that changes nothing.
func NewRecorder(answer processor.Func) *Recorder {
	if answer == nil {
		answer = Respond(nil)
	}
	return &Recorder{answer: answer, changed: make(chan struct{}), running: map[process.Key]int{}}
}

// Respond returns a function that answers with this response and changes nothing else.
func Respond(response []byte) processor.Func {
	return func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		return processor.Result().Response(response).Done()
	}
}

// Err returns a function that returns err, which may come from processor.Reject or processor.Fail,
// or be any other error.
func Err(err error) processor.Func {
	return func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		return nil, err
	}
}

// Hang blocks until ctx ends and returns its error, like a processor that is stuck.
func Hang(ctx context.Context, _ *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Script adds answers for the next requests, one for each. After that, the recorder uses its own
// answer again. Script returns r.
func (r *Recorder) Script(answers ...processor.Func) *Recorder {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.script = append(r.script, answers...)
	return r
}

// Hold makes every new request wait until release is called or its context ends. Release may be
// called more than once.
func (r *Recorder) Hold() (release func()) {
	gate := make(chan struct{})
	r.mu.Lock()
	r.gate = gate
	r.mu.Unlock()
	return sync.OnceFunc(func() {
		r.mu.Lock()
		if r.gate == gate {
			r.gate = nil
		}
		r.mu.Unlock()
		close(gate)
	})
}

// Process records the request and answers it.
func (r *Recorder) Process(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	key := process.Key{Namespace: req.GetProcess().GetNamespace(), ProcessID: req.GetProcess().GetProcessId()}
	answer, gate := r.begin(key, req)
	defer r.end(key)
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return answer(ctx, req)
}

func (r *Recorder) begin(key process.Key, req *progressorv1.ProcessRequest) (processor.Func, chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, proto.CloneOf(req))
	r.running[key]++
	if r.running[key] > 1 {
		r.overlaps = append(r.overlaps, key)
	}
	answer := r.answer
	if len(r.script) > 0 {
		answer, r.script = r.script[0], r.script[1:]
	}
	r.wake()
	return answer, r.gate
}

func (r *Recorder) end(key process.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[key]--; r.running[key] == 0 {
		delete(r.running, key)
	}
	r.wake()
}

func (r *Recorder) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Next waits for the next request that Next has not returned yet, in the order of arrival.
func (r *Recorder) Next(ctx context.Context) (*progressorv1.ProcessRequest, error) {
	var next *progressorv1.ProcessRequest
	err := r.wait(ctx, "a request", func() bool {
		if r.taken == len(r.requests) {
			return false
		}
		next = r.requests[r.taken]
		r.taken++
		return true
	})
	return next, err
}

// Idle waits until no request is being handled.
func (r *Recorder) Idle(ctx context.Context) error {
	return r.wait(ctx, "the recorder to be idle", func() bool { return len(r.running) == 0 })
}

func (r *Recorder) wait(ctx context.Context, what string, done func() bool) error {
	for {
		r.mu.Lock()
		if done() {
			r.mu.Unlock()
			return nil
		}
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
}

// Requests returns all requests so far, in the order of arrival.
func (r *Recorder) Requests() []*progressorv1.ProcessRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Running returns the number of requests that are being handled, including those held back.
func (r *Recorder) Running() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	total := 0
	for _, n := range r.running {
		total += n
	}
	return total
}

// Overlaps returns the processes that had two requests at a time, once per overlap. The engine
// promises that there are none.
func (r *Recorder) Overlaps() []process.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.overlaps)
}
