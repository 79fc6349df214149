package engine

import (
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

// PollParams is a worker's request for tasks.
type PollParams struct {
	Namespaces []string
	WorkerID   string
	JobNames   []string // only jobs of these names; none: whatever there is
	JobsOnly   bool     // but no tasks of processes that are no jobs
	Max        int
	Wait       time.Duration
	Lease      time.Duration // 0: the namespace's
}

const (
	// defaultLease is how long a worker may be silent where neither it nor its namespace nor the job says.
	defaultLease = 30 * time.Second
	maxLease     = process.MaxLease
)

// Poll leases tasks to a worker: at once where there are some, else as soon as there are, at most Wait from now. One that was told to take
// nothing new gets nothing, after a moment: it may ask again and again.
func (e *Engine) Poll(ctx context.Context, p PollParams) ([]*progressorv1.Lease, error) {
	share := e.pollShareOf(p.Namespaces)
	if err := e.admit(share); err != nil {
		return nil, err
	}
	defer e.leave(share)
	over := time.NewTimer(p.Wait)
	defer over.Stop()
	for first := true; ; first = false {
		known := e.registry.byName.Load()
		lines, err := e.subscriptions(ctx, p)
		if err != nil {
			return nil, err
		}
		e.workers.see(p.WorkerID, p.Namespaces...)
		order, err := e.workers.command(ctx, p.WorkerID)
		if err != nil {
			return nil, err
		}
		if order != storage.WorkerGoesOn {
			if first && p.Wait > 0 {
				e.rest(ctx, min(p.Wait, workersRest))
			}
			return nil, nil
		}
		wait := e.pulls.join(&p, lines)
		if e.workers.lastCommand(p.WorkerID) != storage.WorkerGoesOn || e.registry.byName.Load() != known {
			// The order or a change of a namespace came before the poll could be woken.
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

// rest lets time go by, as long as somebody waits for the answer.
func (e *Engine) rest(ctx context.Context, d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
	case <-e.drained:
	}
}

// subscriptions are where a worker looks now: paused namespaces are left out.
func (e *Engine) subscriptions(ctx context.Context, p PollParams) ([]storage.Subscription, error) {
	var lines []storage.Subscription
	names := p.JobNames
	if len(names) == 0 {
		names = []string{""}
	}
	for n, name := range p.Namespaces {
		ns, err := e.namespace(ctx, name)
		if errors.Is(err, process.ErrNamespaceNotFound) {
			return nil, &process.ItemError{Field: fmt.Sprintf("namespaces[%d]", n), Key: process.Key{Namespace: name}, Err: err}
		}
		if err != nil {
			return nil, err
		}
		if ns.lease == 0 {
			return nil, &process.InvalidError{Field: fmt.Sprintf("namespaces[%d]", n),
				Message: fmt.Sprintf("the tasks of namespace %q go to its processor; workers take those of namespaces whose processor is pull", name)}
		}
		if ns.paused {
			continue
		}
		lease := p.Lease
		if lease <= 0 {
			lease = ns.lease
		}
		for _, job := range names {
			lines = append(lines, storage.Subscription{Namespace: name, JobName: job, JobsOnly: p.JobsOnly, StepTimeout: ns.stepTimeout, Lease: lease, MaxLease: maxLease})
		}
	}
	return lines, nil
}

// lease claims for a worker once.
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
		// Nobody would get it, or may, or the histories that were read fill the response.
		if ctx.Err() != nil || histories > maxHistoriesBytes || !e.admits(&held[n].Claim) {
			e.release(&held[n])
			continue
		}
		lease, history, err := e.leaseMessage(&held[n])
		histories += history
		if err != nil {
			e.refuseLease(&held[n], err)
			continue
		}
		e.store.Saw(held[n].Claim.TaskID, held[n].Claim.FencingToken)
		e.leased.put(&held[n], e.traces.slim(held[n].Claim.Context))
		leases = append(leases, lease)
	}
	return leases, nil
}

// maxHistoriesBytes bounds the events of all leases of a response. The tasks themselves are bounded by the claim.
const maxHistoriesBytes = process.MaxHistoryBytes

// pollsAtOnce is how many polls are in the database at a time. Each passes over the rows that the others have locked: with eight of them, a
// hundred jobs each, that was a third of what a claim costs.
const pollsAtOnce = 2

// polled claims when it is this poll's turn.
func (e *Engine) polled(ctx context.Context, p PollParams, lines []storage.Subscription) ([]storage.Lease, error) {
	select {
	case e.polling <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("poll of %s: %w", p.WorkerID, ctx.Err())
	}
	defer func() { <-e.polling }()
	return e.store.Poll(ctx, p.WorkerID, lines, p.Max, e.pulls.grouped(lines))
}

// leaseMessage returns a lease as its worker gets it, and the bytes of the events in it.
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

// refuseLease ends an attempt that cannot be handed out, such as one of a process whose history is too large.
func (e *Engine) refuseLease(l *storage.Lease, cause error) {
	if errors.Is(cause, errGivenBack) {
		e.release(l)
		return
	}
	ns := e.registry.all()[l.Claim.Namespace]
	d := decide(attemptEnd{claim: &l.Claim, err: cause, retry: ns.retry, kind: e.kinds[l.Claim.Kind], workerID: l.WorkerID})
	_ = e.endLease(ns, l, d) // it has logged what went wrong; the lease expires
}

// release gives the task of a lease back unanswered: no attempt is counted, and another worker takes it at once.
func (e *Engine) release(l *storage.Lease) {
	ns, ok := e.registry.all()[l.Claim.Namespace]
	if !ok {
		return
	}
	d := &decision{completion: releaseCompletion(&l.Claim, e.kinds[l.Claim.Kind])}
	if d.completion.Job != nil {
		d.completion.Job.WorkerID = l.WorkerID
	}
	_ = e.endLease(ns, l, d) // it has logged what went wrong; the lease expires
}

// endLease stores the end of an attempt that a worker held, and its lease goes.
func (e *Engine) endLease(ns *namespace, l *storage.Lease, d *decision) error {
	d.workerID, d.completion.StepTimeout, d.completion.Leased = l.WorkerID, ns.stepTimeout, true
	span := e.traces.leased(l)
	sendAlong(span, d.completion.Messages)
	saved, err := e.save(ns, &l.Claim, d)
	if err == nil { // of one that is over already its end was told, and an answer that could not be stored comes again
		endSpan(span, d, saved.Now, nil)
	}
	return err
}

// CompleteLease stores the answer of a worker. process.ErrFenced: the lease was lost, and nothing is stored.
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

// LeaseEnd is an answer with the lease that it is of.
type LeaseEnd struct {
	Token  string
	Answer LeaseAnswer
}

// maxEndsAtOnce bounds how many answers of one batch are on their way to the database: enough to fill the flushes of every lane.
const maxEndsAtOnce = 256

// CompleteLeases stores answers, as CompleteLease does each: side by side, so that they ride in common flushes. It gives an error for each.
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

// ReleaseLeases gives leases back unanswered. Those that were lost are left out.
func (e *Engine) ReleaseLeases(ctx context.Context, tokens []string) error {
	for n, token := range tokens {
		t, err := parseLeaseToken(fmt.Sprintf("lease_tokens[%d]", n), token)
		if err != nil {
			return err
		}
		l, err := e.heldLease(ctx, t)
		if errors.Is(err, process.ErrFenced) {
			continue
		}
		if err != nil {
			return err
		}
		e.release(l)
		e.leased.drop(t)
	}
	return nil
}

// BeatLeases takes the heartbeat of a worker and tells it what to do with each of its leases.
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
				Message: fmt.Sprintf("%d bytes of JSON, at most %d", len(progress), process.MaxProgressBytes),
			}
		}
		e.workers.see(r.GetWorkerId(), t.Key.Namespace)
		beats = append(beats, storage.Beat{Token: t, Progress: progress, Lease: min(b.GetLeaseDuration().AsDuration(), maxLease)})
		order[n] = n
	}
	// In one order, so that two heartbeats, or one and a result, do not wait for each other.
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
	for n, at := range order {
		b := beaten[n]
		d := &progressorv1.LeaseDirective{LeaseToken: r.GetBeats()[at].GetLeaseToken(), Directive: progressorv1.LeaseDirective_DIRECTIVE_CONTINUE}
		switch {
		case b.Lost:
			d.Directive = progressorv1.LeaseDirective_DIRECTIVE_LOST
			e.leased.drop(beats[at].Token)
		case b.Cancelling:
			d.Directive, d.CancelReason = progressorv1.LeaseDirective_DIRECTIVE_CANCEL, b.CancelReason
		}
		if !b.Lost {
			d.ExpiresTime, d.HeartbeatInterval = timestamppb.New(b.ExpiresTime), durationpb.New(b.Heartbeat)
		}
		directives[at] = d
	}
	return directives, nil
}

// heldLease is the lease of a token: from memory where this node has handed it out, which spares a read.
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

// A lease token is base64url of: length of the namespace (1 byte), namespace, fencing token (8 bytes), salt (16 bytes), process id.
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
		return storage.LeaseToken{
			Key:          process.Key{Namespace: string(name), ProcessID: string(rest[8+saltBytes:])},
			FencingToken: int64(binary.BigEndian.Uint64(rest)),
			Salt:         rest[8 : 8+saltBytes],
		}, nil
	}
	return storage.LeaseToken{}, &process.InvalidError{Field: field, Message: "this is no lease token: give back the one of the lease, as it is"}
}

// leased remembers leases that this node has handed out, without what only their workers need. Of the context it keeps a trace.
type leased struct {
	mu      sync.Mutex
	byToken map[storage.AttemptRef]*heldLease
}

// heldLease is a lease that this node has handed out.
type heldLease struct {
	storage.Lease
	since time.Time // by the clock of this node
}

// maxLeased bounds what is remembered; of what is beyond the database knows.
const maxLeased = 20_000

func (l *leased) put(held *storage.Lease, context []byte) {
	slim := heldLease{*held, time.Now()}
	slim.Claim.Args, slim.Claim.Context, slim.Claim.AuxState, slim.Claim.Metadata = nil, context, nil, nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byToken) >= maxLeased {
		// Any one: most are of leases that were answered elsewhere, or by nobody, and this one's answer is yet to come.
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

// clear forgets all leases: the database knows them.
func (l *leased) clear() {
	l.mu.Lock()
	clear(l.byToken)
	l.mu.Unlock()
}

// prune forgets leases whose attempt is over by its time, whoever has answered them.
func (l *leased) prune() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for token, held := range l.byToken {
		if time.Since(held.since) > held.Timeout+time.Minute {
			delete(l.byToken, token)
		}
	}
}
