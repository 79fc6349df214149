package engine

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// PollParams is a request of a worker for tasks.
type PollParams struct {
	Namespaces []string
	WorkerID   string
	JobNames   []string // only jobs with these names; empty means all tasks
	JobsOnly   bool     // no tasks of processes that are not jobs
	Max        int
	Wait       time.Duration
	Lease      time.Duration // 0 means the lease duration of the namespace
}

const (
	// defaultLease is used if neither the worker nor the namespace nor the job sets a lease
	// duration.
	defaultLease = 30 * time.Second
	maxLease     = process.MaxLease
)

// Poll leases tasks to a worker. If there are none, it waits until there are, or until Wait has
// passed. A worker with the directive to take no new tasks gets none after a short pause, because
// it may poll again at once.
func (e *Engine) Poll(ctx context.Context, p PollParams) ([]*progressorv1.Lease, error) {
	share := e.pollShareOf(p.Namespaces)
	if err := e.admit(share); err != nil {
		return nil, err
	}
	defer e.leave(share)
	over := time.NewTimer(p.Wait)
	defer over.Stop()
	for first := true; ; first = false {
		known, pauses := e.registry.byName.Load(), e.registry.pauses.Load()
		lines, err := e.subscriptions(ctx, p)
		if err != nil {
			return nil, err
		}
		e.workers.recordSeen(p.WorkerID, p.Namespaces...)
		order, err := e.workers.command(ctx, p.WorkerID)
		if err != nil {
			return nil, err
		}
		if order != storage.WorkerContinue {
			if first && p.Wait > 0 {
				e.rest(ctx, min(p.Wait, workersRest))
			}
			return nil, nil
		}
		wait := e.pulls.join(&p, lines)
		if e.workers.lastCommand(p.WorkerID) != storage.WorkerContinue || e.registry.byName.Load() != known || e.registry.pauses.Load() != pauses {
			// The command or the change of a namespace came before the poll could be woken.
			e.pulls.leave(wait)
			continue
		}
		leases, err := e.lease(ctx, p, lines)
		if err != nil || len(leases) > 0 || p.Wait <= 0 {
			e.pulls.leave(wait)
			return leases, err
		}
		select {
		case <-wait.woken:
			continue
		case <-over.C:
		case <-ctx.Done():
		case <-e.drained:
		}
		e.pulls.leave(wait)
		return nil, nil
	}
}

// rest waits until d has passed, ctx is cancelled or the node drains.
func (e *Engine) rest(ctx context.Context, d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
	case <-e.drained:
	}
}

// subscriptions returns what a poll can take now. It skips paused namespaces and job names.
func (e *Engine) subscriptions(ctx context.Context, p PollParams) ([]storage.Subscription, error) {
	var lines []storage.Subscription
	names := p.JobNames // "" is any name
	if len(names) == 0 {
		names = []string{""}
	}
	for n, name := range p.Namespaces {
		ns, err := e.namespace(ctx, name)
		if errors.Is(err, process.ErrNamespaceNotFound) || errors.Is(err, process.ErrNamespaceDeleting) {
			return nil, &process.ItemError{Field: fmt.Sprintf("namespaces[%d]", n), Key: process.Key{Namespace: name}, Err: err}
		}
		if err != nil {
			return nil, err
		}
		if ns.lease == 0 {
			return nil, &process.InvalidError{Field: fmt.Sprintf("namespaces[%d]", n),
				Message: fmt.Sprintf("namespace %q calls its processor: workers get tasks only if the processor is pull", name)}
		}
		if ns.paused {
			continue
		}
		lease := cmp.Or(max(p.Lease, 0), ns.lease)
		for _, job := range names {
			if e.IsJobPaused(name, job) {
				continue
			}
			lines = append(lines, storage.Subscription{Namespace: name, JobName: job, JobsOnly: p.JobsOnly, Pauses: job == "" && e.hasPausedNames(name), StepTimeout: ns.stepTimeout, Lease: lease, MaxLease: maxLease})
		}
	}
	return lines, nil
}

// lease claims tasks for a worker once.
func (e *Engine) lease(ctx context.Context, p PollParams, lines []storage.Subscription) ([]*progressorv1.Lease, error) {
	if len(lines) == 0 || p.Max <= 0 || !e.isConnected() {
		return nil, nil
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	held, err := e.polled(limit, p, lines)
	if err != nil {
		return nil, err
	}
	leases := make([]*progressorv1.Lease, 0, len(held))
	histories := 0
	for n := range held {
		// The worker is gone, the kind does not admit the job, or the histories fill the response.
		if ctx.Err() != nil || histories > maxHistoriesBytes || !e.admits(&held[n].Claim) {
			e.release(&held[n], 0)
			continue
		}
		lease, history, err := e.leaseMessage(&held[n])
		histories += history
		if err != nil {
			e.refuseLease(&held[n], err)
			continue
		}
		e.store.RecordNumbers(held[n].Claim.TaskID, held[n].Claim.FencingToken)
		e.leased.put(&held[n], e.traces.leaseContext(held[n].Claim.Context))
		leases = append(leases, lease)
	}
	return leases, nil
}

// maxHistoriesBytes limits the events of all leases in a response. The claim limits the tasks.
const maxHistoriesBytes = process.MaxHistoryBytes

// pollsAtOnce is how many polls use the database at a time. Each skips the rows that others have
// locked. With eight polls of 100 jobs each, skipping was a third of the cost of a claim.
const pollsAtOnce = 2

// polled claims tasks when it is the turn of this poll.
func (e *Engine) polled(ctx context.Context, p PollParams, lines []storage.Subscription) ([]storage.Lease, error) {
	select {
	case e.polling <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("poll of %s: %w", p.WorkerID, ctx.Err())
	}
	defer func() { <-e.polling }()
	return e.store.Poll(ctx, p.WorkerID, lines, p.Max, e.pulls.grouped(lines))
}

// leaseMessage converts a lease to its message. It also returns the size of its events in bytes.
func (e *Engine) leaseMessage(l *storage.Lease) (lease *progressorv1.Lease, history int, err error) {
	c := &l.Claim
	ns, ok := e.registry.all()[c.Namespace]
	if !ok {
		return nil, 0, errGivenBack
	}
	read, err := e.historyOf(ns, c, nil)
	if err != nil {
		return nil, 0, err
	}
	request, err := wire.Request(c, read.events, read.asked, c.RunningTime.Add(l.Timeout))
	if err != nil {
		return nil, 0, err
	}
	job, err := wire.LeasedJob(l)
	if err != nil {
		return nil, 0, err
	}
	parent, state := e.traces.handOut(c)
	return &progressorv1.Lease{
		LeaseToken: leaseToken(l), Namespace: c.Namespace, Request: request, Job: job,
		ExpiresTime:       timestamppb.New(c.RunningTime.Add(min(l.Duration, 2*l.Heartbeat))),
		HeartbeatInterval: durationpb.New(l.Heartbeat), LeasedTime: timestamppb.New(c.RunningTime), Traceparent: parent, Tracestate: state,
	}, read.bytes, nil
}

// refuseLease ends an attempt that cannot be handed out, such as one with a too large history.
func (e *Engine) refuseLease(l *storage.Lease, cause error) {
	if errors.Is(cause, errGivenBack) {
		e.release(l, 0)
		return
	}
	ns, ok := e.registry.all()[l.Claim.Namespace]
	if !ok {
		return // the namespace was deleted
	}
	d := decide(attemptEnd{claim: &l.Claim, err: cause, retry: ns.retry, kind: e.kinds[l.Claim.Kind], workerID: l.WorkerID})
	_ = e.endLease(ns, l, d) // the error was logged and the lease expires
}

// release releases the task of a lease. The attempt is not counted, and another worker may take the
// task after delay.
func (e *Engine) release(l *storage.Lease, delay time.Duration) {
	ns, ok := e.registry.all()[l.Claim.Namespace]
	if !ok {
		return
	}
	d := &decision{completion: releaseCompletion(&l.Claim, e.kinds[l.Claim.Kind])}
	if d.completion.Job != nil {
		d.completion.Job.WorkerID = l.WorkerID
	}
	d.completion.RetryAfter = delay
	err := e.endLease(ns, l, d) // it was logged, and the lease expires
	if err == nil && delay > 0 {
		e.timers.alarm(l.Claim.Namespace, delay)
	}
}

// endLease stores the end of a leased attempt and deletes the lease.
func (e *Engine) endLease(ns *namespace, l *storage.Lease, d *decision) error {
	d.workerID, d.completion.StepTimeout, d.completion.Leased = l.WorkerID, ns.stepTimeout, true
	span := e.traces.leased(l)
	sendAlong(span, d.completion.Messages)
	saved, err := e.save(ns, &l.Claim, d)
	if err == nil { // a lease that is over has a span already, and an answer that could not be stored is sent again
		endSpan(span, d, saved.Now, nil)
	}
	return err
}

// CompleteLease stores the answer of a worker, or returns process.ErrFenced if the lease was lost.
func (e *Engine) CompleteLease(ctx context.Context, token string, a LeaseAnswer) error {
	if err := e.admit(nil); err != nil {
		return err
	}
	defer e.leave(nil)
	t, err := parseLeaseToken("lease_token", token)
	if err != nil {
		return err
	}
	l, err := e.heldLease(ctx, t)
	if errors.Is(err, process.ErrFenced) {
		return e.answeredBefore(ctx, t, a)
	}
	if err != nil {
		return err
	}
	ns, err := e.namespace(ctx, t.Key.Namespace)
	if errors.Is(err, process.ErrNamespaceDeleting) || errors.Is(err, process.ErrNamespaceNotFound) {
		return process.ErrFenced // its tasks are being deleted
	}
	if err != nil {
		return err
	}
	end := attemptEnd{claim: &l.Claim, retry: ns.retry, random: rand.Float64(), kind: e.kinds[l.Claim.Kind], workerID: l.WorkerID}
	a.into(&end)
	d := decide(end)
	d.completion.AnsweredBy = l.WorkerID
	err = e.endLease(ns, l, d)
	e.leased.drop(t)
	if errors.Is(err, process.ErrFenced) {
		return e.answeredBefore(ctx, t, a)
	}
	return err
}

// LeaseEnd is an answer with the token of its lease.
type LeaseEnd struct {
	Token  string
	Answer LeaseAnswer
}

// maxEndsAtOnce is how many answers of a batch are stored concurrently, which fills every lane.
const maxEndsAtOnce = 256

// CompleteLeases calls CompleteLease for each answer, concurrently so that they share flushes. It
// returns one error per answer.
func (e *Engine) CompleteLeases(ctx context.Context, ends []LeaseEnd) []error {
	failed := make([]error, len(ends))
	room := make(chan struct{}, maxEndsAtOnce)
	var stored sync.WaitGroup
	for n, end := range ends {
		room <- struct{}{}
		stored.Add(1)
		e.runners.Go(func() {
			defer func() { <-room; stored.Done() }()
			failed[n] = e.CompleteLease(ctx, end.Token, end.Answer)
		})
	}
	stored.Wait()
	return failed
}

// maxReasonsBytes limits the cancel reasons in the response to a heartbeat. The directives after
// that have none.
const maxReasonsBytes = 4 << 20

// BeatLeases processes a heartbeat of a worker and returns a directive for each of its leases.
func (e *Engine) BeatLeases(ctx context.Context, r *progressorv1.HeartbeatRequest) ([]*progressorv1.LeaseDirective, error) {
	if err := DistinctLeases("beats", r.GetBeats()); err != nil {
		return nil, err
	}
	beats := make([]storage.Beat, 0, len(r.GetBeats()))
	order := make([]int, len(r.GetBeats()))
	for n, b := range r.GetBeats() {
		t, err := parseLeaseToken(fmt.Sprintf("beats[%d].lease_token", n), b.GetLeaseToken())
		if err != nil {
			return nil, err
		}
		progress, err := wire.ProgressJSON(b.GetProgress())
		if err != nil {
			return nil, &process.InvalidError{Field: fmt.Sprintf("beats[%d].progress", n), Message: err.Error()}
		}
		if len(progress) > process.MaxProgressBytes {
			return nil, &process.InvalidError{
				Field: fmt.Sprintf("beats[%d].progress", n), TooLarge: true,
				Message: fmt.Sprintf("must have at most %d bytes of JSON (got %d)", process.MaxProgressBytes, len(progress)),
			}
		}
		e.workers.recordSeen(r.GetWorkerId(), t.Key.Namespace)
		beats = append(beats, storage.Beat{Token: t, Progress: progress, Lease: min(b.GetLeaseDuration().AsDuration(), maxLease)})
		order[n] = n
	}
	// Sort the beats so that concurrent heartbeats and results lock rows in the same order.
	slices.SortFunc(order, func(a, b int) int { return beats[a].Token.Key.Compare(beats[b].Token.Key) })
	sorted := make([]storage.Beat, len(beats))
	for n, at := range order {
		sorted[n] = beats[at]
	}
	beaten, err := e.store.BeatLeases(ctx, r.GetWorkerId(), sorted)
	if err != nil {
		return nil, err
	}
	directives := make([]*progressorv1.LeaseDirective, len(beats))
	reasons := 0 // bytes of reasons in the response
	for n, at := range order {
		b := beaten[n]
		d := &progressorv1.LeaseDirective{LeaseToken: r.GetBeats()[at].GetLeaseToken(), Directive: progressorv1.LeaseDirective_DIRECTIVE_CONTINUE}
		switch {
		case b.Lost:
			d.Directive = progressorv1.LeaseDirective_DIRECTIVE_LOST
			e.leased.drop(beats[at].Token)
		case b.Cancelling:
			d.Directive = progressorv1.LeaseDirective_DIRECTIVE_CANCEL
			if reasons < maxReasonsBytes {
				d.CancelReason = b.CancelReason
				reasons += len(b.CancelReason)
			}
		}
		if !b.Lost {
			d.ExpiresTime, d.HeartbeatInterval = timestamppb.New(b.ExpiresTime), durationpb.New(b.Heartbeat)
		}
		directives[at] = d
	}
	return directives, nil
}

// heldLease returns the lease of a token. If this node handed it out, that saves a read.
func (e *Engine) heldLease(ctx context.Context, t storage.LeaseToken) (*storage.Lease, error) {
	if l := e.leased.get(t); l != nil {
		return l, nil
	}
	l, err := e.store.ReadLease(ctx, t)
	if err != nil {
		return nil, err
	}
	return &l, nil
}

// A lease token is the base64url encoding of: length of the namespace (1 byte), namespace, fencing
// token (8 bytes), salt (16 bytes), process ID.
const saltBytes = 16

func leaseToken(l *storage.Lease) string {
	c := &l.Claim
	b := make([]byte, 0, 1+len(c.Namespace)+16+len(c.ProcessID))
	b = append(b, byte(len(c.Namespace)))
	b = append(b, c.Namespace...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.FencingToken))
	b = append(b, l.Salt...)
	b = append(b, c.ProcessID...)
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseLeaseToken(field, token string) (storage.LeaseToken, error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil && len(b) > 0 && len(b) > 1+int(b[0])+8+saltBytes {
		name, rest := b[1:1+int(b[0])], b[1+int(b[0]):]
		key := process.Key{Namespace: string(name), ProcessID: string(rest[8+saltBytes:])}
		if wire.Plain(key.Namespace) == key.Namespace && wire.Plain(key.ProcessID) == key.ProcessID {
			return storage.LeaseToken{Key: key, FencingToken: int64(binary.BigEndian.Uint64(rest)), Salt: rest[8 : 8+saltBytes]}, nil
		}
	}
	return storage.LeaseToken{}, &process.InvalidError{Field: field, Message: "must be the lease_token of a lease, unchanged"}
}

// leased caches leases that this node handed out, without the parts that only workers need. Of the
// context it keeps the trace.
type leased struct {
	mu      sync.Mutex
	byToken map[storage.AttemptRef]*heldLease
}

// heldLease is a lease that this node has handed out.
type heldLease struct {
	storage.Lease
	since time.Time // on the clock of this node
}

// maxLeased is the size of the cache. Other leases are read from the database.
const maxLeased = 20_000

func (l *leased) put(held *storage.Lease, context []byte) {
	slim := heldLease{*held, time.Now()}
	slim.Claim.Args, slim.Claim.Context, slim.Claim.AuxState, slim.Claim.Metadata = nil, context, nil, nil
	slim.Progress = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byToken) >= maxLeased {
		// Drop any entry. Most are of leases that other nodes completed or that were never
		// answered, and the new lease is not yet answered.
		for token := range l.byToken {
			delete(l.byToken, token)
			break
		}
	}
	l.byToken[attemptOf(&held.Claim)] = &slim
}

func (l *leased) get(t storage.LeaseToken) *storage.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.byToken[storage.AttemptRef{Key: t.Key, FencingToken: t.FencingToken}]
	if held == nil || string(held.Salt) != string(t.Salt) {
		return nil
	}
	return &held.Lease
}

// since returns when this node handed out the lease of an attempt, if it did.
func (l *leased) since(ref storage.AttemptRef) (at time.Time, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held, ok := l.byToken[ref]; ok {
		return held.since, true
	}
	return time.Time{}, false
}

func (l *leased) drop(t storage.LeaseToken) {
	l.mu.Lock()
	delete(l.byToken, storage.AttemptRef{Key: t.Key, FencingToken: t.FencingToken})
	l.mu.Unlock()
}

// clear drops all leases. They are read from the database when needed.
func (l *leased) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.byToken)
}

// prune drops leases whose attempt must have ended.
func (l *leased) prune() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for token, held := range l.byToken {
		if time.Since(held.since) > held.Timeout+time.Minute {
			delete(l.byToken, token)
		}
	}
}
