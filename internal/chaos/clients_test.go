//go:build linux

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const namespace = "chain"

// fleet contains a client for each engine. If an engine does not answer, the next one is tried.
type fleet struct {
	t       testing.TB
	try     time.Duration // how long to wait for one engine
	mutex   sync.Mutex
	engines []*client.Client
	hosts   []string
}

func newFleet(t testing.TB, nodes ...*node) *fleet {
	f := &fleet{t: t, try: 2 * time.Second, engines: make([]*client.Client, len(nodes)),
		hosts: make([]string, len(nodes))}
	for i, n := range nodes {
		f.replace(i, n)
	}
	return f
}

// one returns a client that uses only one engine and does not retry.
func one(n *node) *client.Client {
	return client.New(n.url, client.WithRetry(client.Retry{MaxAttempts: 1}), client.WithoutKeys())
}

// replace replaces an engine with another one.
func (f *fleet) replace(i int, n *node) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.engines[i], f.hosts[i] = one(n), strings.TrimPrefix(n.url, "http://")
}

func (f *fleet) at(i int) *client.Client {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.engines[i%len(f.engines)]
}

// putChain creates the namespace of a chain. change may be nil.
func putChain(t testing.TB, n *node, c *chain, change func(*progressorv1.Namespace)) {
	t.Helper()
	ns := &progressorv1.Namespace{
		Namespace: namespace, StepTimeout: durationpb.New(10 * time.Second),
		HistoryMode: progressorv1.HistoryMode_HISTORY_MODE_NONE,
		RetryPolicy: &progressorv1.RetryPolicy{InitialInterval: durationpb.New(50 * time.Millisecond),
			MaxAttempts: 100},
		Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Connect{
			Connect: &progressorv1.ConnectProcessor{Url: c.url},
		}},
	}
	if change != nil {
		change(ns)
	}
	if _, err := one(n).Namespace.PutNamespace(t.Context(),
		&progressorv1.PutNamespaceRequest{Namespace: ns}); err != nil {
		t.Fatal(err)
	}
}

// outcome is what a client knows about an operation.
type outcome int

const (
	unknown outcome = iota // the operation may have been executed
	acked                  // the operation was executed, and the client has the response
	refused                // the operation was not executed, and will not be
)

// entry is one operation in the journal of a client.
type entry struct {
	process, op  string
	notify       bool // acknowledged when it was stored
	everywhere   bool // sent to all engines at once
	unkeyed      bool // without an idempotency key, so it is sent only once
	begun, ended time.Time
	outcome      outcome
	answer       []byte
}

// request sends the operation to one engine, once. The operation is its own idempotency key, unless
// unkeyed is set.
func (e *entry) request(ctx context.Context, c *client.Client) ([]byte, error) {
	req := &progressorv1.CallRequest{Namespace: namespace, ProcessId: e.process, Args: []byte(e.op),
		IdempotencyKey: e.op}
	if e.unkeyed {
		req.IdempotencyKey = ""
	}
	if e.notify {
		req.Wait = progressorv1.Wait_WAIT_ACCEPTED
	}
	resp, err := c.Call(ctx, req)
	return resp.GetResponse(), err
}

// errBroken means that the status of the process does not allow the call or command, for example
// because the process is in ERROR or SUSPENDED.
var errBroken = errors.New("the process is in ERROR")

// verdict returns the outcome that a response proves. If the outcome is unknown and the error is
// nil, the client must try another engine.
func verdict(err error) (outcome, error) {
	if err == nil {
		return acked, nil
	}
	reason := client.Reason(err)
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return unknown, nil
	case connect.CodeAborted:
		return refused, nil
	case connect.CodeResourceExhausted:
		if reason == progressorv1.ErrorDetail_REASON_OVERLOADED {
			return unknown, nil
		}
	case connect.CodeFailedPrecondition:
		switch reason {
		case progressorv1.ErrorDetail_REASON_TASK_REJECTED:
			return refused, nil
		case progressorv1.ErrorDetail_REASON_PROCESS_STATUS:
			return unknown, errBroken
		}
	default:
		if client.Detail(err) == nil {
			return unknown, nil // the connection broke, so the error is not the response of an engine
		}
	}
	return unknown, err
}

// do sends an operation until an engine answers. It sends an unkeyed operation only once.
func (f *fleet) do(ctx context.Context, e *entry, first int, seen *responseCounts) error {
	e.begun = time.Now()
	if e.everywhere {
		defer f.ask(ctx, e)()
	}
	defer func() { e.ended = time.Now() }()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for try := first; ; try++ {
		limit, cancel := context.WithTimeout(ctx, f.try)
		began := time.Now()
		answer, err := e.request(limit, f.at(try))
		cancel()
		seen.note(err, time.Since(began))
		result, hard := verdict(err)
		if hard != nil {
			return hard
		}
		if result != unknown {
			e.outcome, e.answer = result, answer
			return nil
		}
		if e.unkeyed {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s of %s was never answered: %w", e.op, e.process, err)
		case <-pause.C:
		}
	}
}

// ask sends the operation to all engines at once. The returned function waits for their responses
// and checks that each response that arrives equals the one in e.
func (f *fleet) ask(ctx context.Context, e *entry) (check func()) {
	limit, cancel := context.WithTimeout(ctx, f.try)
	answers := make([][]byte, len(f.engines))
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() {
			if answer, err := e.request(limit, f.at(i)); err == nil {
				answers[i] = answer
			}
		})
	}
	return func() {
		group.Wait()
		cancel()
		for _, answer := range answers {
			if answer != nil && e.outcome == acked && !bytes.Equal(answer, e.answer) {
				f.t.Errorf("%s of %s was answered with %x, but another engine answered %x", e.op, e.process, e.answer,
					answer)
			}
		}
	}
}

// start starts processes named p0, p1, …
func (f *fleet) start(processes int) {
	f.t.Helper()
	var group sync.WaitGroup
	for i := range processes {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(f.t.Context(), testTimeout)
			defer cancel()
			req := &progressorv1.StartRequest{Namespace: namespace, ProcessId: processID(i), Args: []byte("init"),
				IdempotencyKey: "init"}
			if _, err := f.at(i).Start(ctx, req); err != nil {
				f.t.Errorf("start process p%d: %v", i, err)
			}
		})
	}
	group.Wait()
}

// responseCounts counts the responses that clients received.
type responseCounts struct {
	mutex sync.Mutex
	codes map[connect.Code]int
	last  map[connect.Code]string // the last error of each code
	worst time.Duration           // the longest wait for UNAVAILABLE
}

func (s *responseCounts) note(err error, took time.Duration) {
	if err == nil {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.codes == nil {
		s.codes, s.last = map[connect.Code]int{}, map[connect.Code]string{}
	}
	code := connect.CodeOf(err)
	if code == connect.CodeCanceled && client.Detail(err) == nil {
		code = connect.CodeUnavailable // a broken connection: Connect reports it as if the client had ended
	}
	s.codes[code]++
	s.last[code] = err.Error()
	if code == connect.CodeUnavailable {
		s.worst = max(s.worst, took)
	}
}

func (s *responseCounts) of(code connect.Code) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.codes[code]
}

// only fails the test if clients received responses other than results and UNAVAILABLE,
// which package client retries.
func (s *responseCounts) only(t testing.TB) {
	t.Helper()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for code, n := range s.codes {
		if code != connect.CodeUnavailable {
			t.Errorf("clients received %s %d times: %s", code, n, s.last[code])
		}
	}
}

func (s *responseCounts) String() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return fmt.Sprintf("%v, UNAVAILABLE after %s at the longest", s.codes, s.worst.Round(time.Millisecond))
}

// load is many clients that call without a pause.
type load struct {
	fleet    *fleet
	held     func() time.Duration // see plan
	ctx      context.Context      // context of all operations
	stop     func()
	acked    atomic.Int64
	repairs  atomic.Int64
	seen     responseCounts
	commands commandLog

	group   sync.WaitGroup
	mutex   sync.Mutex
	entries []*entry
}

// plan defines the work of the clients of a load.
type plan struct {
	clients, processes int
	calls              int // calls of all clients together; 0 means until stop
	seed               uint64
	vary               func(e *entry, number int, random *rand.Rand) // nil means plain calls
	// command may be nil. It may send a command instead of a call, and then returns true.
	command func(l *load, client, seq int, random *rand.Rand) bool
	held    func() time.Duration // for how long the test has held the processor; may be nil
}

// startLoad starts clients. A client whose operation is not answered within testTimeout fails the
// test. The time in which the test itself holds the processor does not count.
func startLoad(f *fleet, p plan) *load {
	stopped := make(chan struct{})
	l := &load{fleet: f, held: p.held, stop: sync.OnceFunc(func() { close(stopped) })}
	if l.held == nil {
		l.held = func() time.Duration { return 0 }
	}
	var giveUp context.CancelFunc
	l.ctx, giveUp = context.WithCancel(context.WithoutCancel(f.t.Context()))
	f.t.Cleanup(func() { // after a test that has passed, nothing is left
		l.stop()
		giveUp()
		l.group.Wait()
	})
	var left atomic.Int64
	left.Store(int64(p.calls))
	for i := range p.clients {
		l.group.Go(func() {
			random := rand.New(rand.NewPCG(p.seed, uint64(i)))
			for seq := 0; p.calls == 0 || left.Add(-1) >= 0; seq++ {
				select {
				case <-stopped:
					return
				default:
				}
				if p.command != nil && p.command(l, i, seq, random) {
					continue
				}
				number := random.IntN(p.processes)
				e := &entry{process: processID(number), op: fmt.Sprintf("c%d-%d", i, seq)}
				if p.vary != nil {
					p.vary(e, number, random)
				}
				l.perform(e, i) // each client prefers its own engine
			}
		})
	}
	return l
}

func (l *load) perform(e *entry, first int) {
	before := l.held()
	ctx, cancel := l.limit(before)
	defer cancel()
	err := l.fleet.do(ctx, e, first, &l.seen)
	switch {
	case errors.Is(err, errBroken):
		l.repair(ctx, e.process, first)
		l.resumeStray(ctx, e.process, first)
	case l.ctx.Err() != nil:
	case err != nil:
		l.fleet.t.Errorf("after %s (the test held the processor for %s): %v",
			time.Since(e.begun).Round(time.Millisecond), (l.held() - before).Round(time.Millisecond), err)
	case e.outcome == acked:
		l.acked.Add(1)
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.entries = append(l.entries, e)
}

// limit returns the context of an operation. The context ends after testTimeout, plus the time for
// which the test holds the processor. before is the part of that time that had passed when the
// operation began.
func (l *load) limit(before time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(l.ctx)
	go func() {
		end := time.Now().Add(testTimeout)
		for left := testTimeout; left > 0; left = time.Until(end.Add(l.held() - before)) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(left):
			}
		}
		cancel()
	}()
	return ctx, cancel
}

// repair takes a process out of ERROR. Another client may do so first.
func (l *load) repair(ctx context.Context, process string, first int) {
	limit, cancel := context.WithTimeout(ctx, l.fleet.try)
	defer cancel()
	_, err := l.fleet.at(first).Process.Repair(limit, &progressorv1.RepairRequest{
		Namespace: namespace, ProcessId: process,
		How: &progressorv1.RepairRequest_Simple{Simple: &progressorv1.RepairRequest_SimpleRepair{}},
	})
	if err == nil {
		l.repairs.Add(1)
	}
}

// wait waits until the clients have done all their calls and returns their journal.
func (l *load) wait() []*entry {
	l.group.Wait()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.entries
}

// finish ends the load after the current operations.
func (l *load) finish() []*entry {
	l.stop()
	return l.wait()
}

func processID(number int) string { return fmt.Sprintf("p%d", number) }
