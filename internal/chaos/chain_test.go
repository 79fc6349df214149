//go:build linux

package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// link is the state of a process after n operations. Each hash covers all earlier operations, so
// processes with different operations, or with the same operations in another order, have different
// links.
type link struct {
	n    uint64
	hash [sha256.Size]byte
}

func (l link) append(op string) link {
	return link{n: l.n + 1, hash: sha256.Sum256(append(l.hash[:], op...))}
}

func (l link) String() string { return fmt.Sprintf("%d, %x", l.n, l.hash[:3]) }

func (l link) bytes() []byte { return append(binary.BigEndian.AppendUint64(nil, l.n), l.hash[:]...) }

// answer returns the response of an attempt: the link, followed by the number of the attempt. So
// the response of an attempt whose result was not stored differs from the stored response.
func (l link) answer(attempt int32) []byte {
	return binary.BigEndian.AppendUint32(l.bytes(), uint32(attempt))
}

func parseLink(text []byte) (l link, err error) {
	if len(text) == 0 {
		return l, nil
	}
	if len(text) != 8+sha256.Size {
		return l, fmt.Errorf("%d bytes are not a link of a chain", len(text))
	}
	l.n = binary.BigEndian.Uint64(text)
	copy(l.hash[:], text[8:])
	return l, nil
}

// The commands to the processor at the end of an operation's text.
const (
	askFail   = " fail"
	askReject = " reject"
	askTimer  = " timer="
)

// chain is the processor. Each operation appends itself to the state. The processor records its
// requests. Tests can hold its attempts and make it unreachable.
type chain struct {
	url string

	mutex     sync.Mutex
	gates     []*gate
	asked     map[string]int      // number of requests, by process and operation
	away      int                 // number of requests still to be rejected
	live      map[string]int      // attempts in progress, by task
	responses map[string][][]byte // responses by process and operation; nil if they are not kept
	held      time.Duration       // total time for which gates have held all attempts, up to since
	since     time.Time           // when the current gate began to hold them; zero if there is none

	inFlight atomic.Int64
	repeated atomic.Int64 // operations that were requested more than once
	refused  atomic.Int64
}

// newChain serves a processor until the test ends.
func newChain(t testing.TB) *chain {
	t.Helper()
	c := &chain{asked: map[string]int{}}
	c.url = serve(t, processor.Func(c.process))
	t.Cleanup(c.openAll)
	return c
}

// serve serves a processor until the test ends, and returns its URL.
func serve(t testing.TB, p processor.Processor, opts ...processor.Option) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	opts = append(opts, processor.WithStopTimeout(time.Second))
	go func() { served <- processor.ServeOn(ctx, listener, p, opts...) }()
	t.Cleanup(func() {
		cancel()
		<-served // attempts of dead engines may be cut off
	})
	return "http://" + listener.Addr().String()
}

// gate holds the attempts that match selects by their operation and number.
type gate struct {
	match   func(op string, attempt int32) bool
	arrived atomic.Int64
	open    func()
	opened  chan struct{}

	mutex sync.Mutex
	tasks []int64 // the IDs of the tasks that arrived
}

// arrive records an attempt that the gate holds.
func (g *gate) arrive(task int64) {
	g.mutex.Lock()
	g.tasks = append(g.tasks, task)
	g.mutex.Unlock()
	g.arrived.Add(1)
}

// held returns the IDs of the tasks that arrived.
func (g *gate) held() []int64 {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return slices.Clone(g.tasks)
}

// hold creates a gate. If match is nil, it holds all attempts. Calls of match do not overlap.
func (c *chain) hold(match func(op string, attempt int32) bool) *gate {
	g := &gate{match: match, opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.gates = append(c.gates, g)
	if match == nil && c.since.IsZero() {
		c.since = time.Now()
	}
	return g
}

// heldTime returns the total time for which gates have held all attempts.
func (c *chain) heldTime() time.Duration {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.since.IsZero() {
		return c.held
	}
	return c.held + time.Since(c.since)
}

func (c *chain) openAll() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !c.since.IsZero() {
		c.held += time.Since(c.since)
		c.since = time.Time{}
	}
	for _, g := range c.gates {
		g.open()
	}
	c.gates = nil
}

// attemptOf matches one attempt of one operation.
func attemptOf(op string, attempt int32) func(string, int32) bool {
	return func(o string, a int32) bool { return o == op && a == attempt }
}

// refuse answers the next n requests with an UnreachableError.
func (c *chain) refuse(n int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.away = n
}

// enter records an attempt and returns the gates that hold it.
func (c *chain) enter(process, op string, attempt int32) ([]*gate, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.away > 0 {
		c.away--
		c.refused.Add(1)
		return nil, &processor.UnreachableError{Err: errors.New("the processor cannot be reached")}
	}
	c.asked[process+" "+op]++
	if c.asked[process+" "+op] > 1 {
		c.repeated.Add(1)
	}
	var holding []*gate
	for _, g := range c.gates {
		if g.match == nil || g.match(op, attempt) {
			holding = append(holding, g)
		}
	}
	return holding, nil
}

// Operations in chains that do not come from calls of clients.
const (
	timerOp  = "timer of task"
	cancelOp = "cancelled"
)

func opOf(req *progressorv1.ProcessRequest) string {
	switch req.GetType() {
	case progressorv1.TaskType_TASK_TYPE_TIMEOUT:
		return fmt.Sprintf("%s %d", timerOp, req.GetTaskId())
	case progressorv1.TaskType_TASK_TYPE_CANCEL:
		return cancelOp
	default:
		return string(req.GetArgs())
	}
}

// note keeps a response if responses is set.
func (c *chain) note(operation string, response []byte) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.responses != nil {
		c.responses[operation] = append(c.responses[operation], response)
	}
}

func (c *chain) process(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	op := opOf(req)
	gates, err := c.enter(req.GetProcess().GetProcessId(), op, req.GetAttempt())
	if err != nil {
		return nil, err
	}
	c.inFlight.Add(1)
	defer c.inFlight.Add(-1)
	defer c.begin(fmt.Sprint(req.GetTaskId()))()
	for _, g := range gates {
		g.arrive(req.GetTaskId())
		select {
		case <-g.opened:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	last, err := parseLink(req.GetProcess().GetAuxState())
	if err != nil {
		return nil, processor.Fail("bad_state", "%w", err)
	}
	if strings.HasSuffix(op, askFail) {
		return nil, processor.Fail("asked", "failed by the operation")
	}
	if strings.HasSuffix(op, askReject) {
		return nil, processor.Reject("asked", "rejected by the operation")
	}
	next := last.append(op)
	response := next.answer(req.GetAttempt())
	c.note(req.GetProcess().GetProcessId()+" "+op, response)
	result := processor.Result().Event([]byte(op)).AuxState(next.bytes()).Response(response)
	for _, w := range commandsOf(req.GetProcess().GetProcessId(), op) {
		w.addTo(result)
	}
	if op == startedToEnd {
		return result.Complete().Done()
	}
	if _, text, found := strings.Cut(op, askTimer); found {
		after, err := time.ParseDuration(text)
		if err != nil {
			return nil, processor.Fail("bad_args", "%w", err)
		}
		result.SetTimerAfter(after)
	}
	return result.Done()
}
