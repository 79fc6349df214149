//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// commandLog records the commands other than calls that clients have sent to processes, and their
// outcomes.
type commandLog struct {
	mutex     sync.Mutex
	holds     map[string]*hold
	windows   []window
	cancelled []string // children whose cancel was acknowledged
}

// hold is the right to suspend and resume a process. Only one client has it at a time, so it knows
// the status of the process.
type hold struct {
	mutex    sync.Mutex
	doubtful bool         // an engine may still execute a resume whose response was lost
	rejected atomic.Int64 // rejected calls
}

// window is a period in which a process was suspended.
type window struct {
	process  string
	from, to time.Time // from the response to the suspend to the request of the resume
}

func (o *commandLog) hold(process string) *hold {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.holds == nil {
		o.holds = map[string]*hold{}
	}
	if o.holds[process] == nil {
		o.holds[process] = &hold{}
	}
	return o.holds[process]
}

// sendCommand sends a command until an engine has answered it. err is the error in the answer, or
// errBroken if the status of the process does not allow the command. unsure means that an earlier
// try may have been executed, or may still be executed.
func (l *load) sendCommand(
	ctx context.Context, first int, request func(context.Context, *client.Client) error,
) (unsure bool, err error) {
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for try := first; ; try++ {
		limit, cancel := context.WithTimeout(ctx, l.fleet.try)
		began := time.Now()
		err := request(limit, l.fleet.at(try))
		cancel()
		l.seen.note(err, time.Since(began))
		if connect.CodeOf(err) != connect.CodeNotFound { // the message that starts the process is being delivered
			result, hard := verdict(err)
			if result != unknown || hard != nil {
				return unsure, hard
			}
			unsure = true
		}
		select {
		case <-ctx.Done():
			return unsure, fmt.Errorf("no engine answered the command: %w", err)
		case <-pause.C:
		}
	}
}

func (l *load) resume(ctx context.Context, process string, first int) (unsure bool, err error) {
	return l.sendCommand(ctx, first, func(ctx context.Context, c *client.Client) error {
		_, err := c.Process.ResumeProcess(ctx,
			&progressorv1.ResumeProcessRequest{Namespace: namespace, ProcessId: process})
		return err
	})
}

// suspend suspends a process until a call to it was rejected, or some time has passed.
func (l *load) suspend(process string, first int) {
	h := l.commands.hold(process)
	if !h.mutex.TryLock() {
		return
	}
	defer h.mutex.Unlock()
	ctx, cancel := context.WithTimeout(l.ctx, testTimeout)
	defer cancel()
	_, err := l.sendCommand(ctx, first, func(ctx context.Context, c *client.Client) error {
		_, err := c.Process.SuspendProcess(ctx,
			&progressorv1.SuspendProcessRequest{Namespace: namespace, ProcessId: process, Reason: "chaos"})
		return err
	})
	w := window{process: process, from: time.Now()}
	if err == nil {
		before := h.rejected.Load()
		waitUntil(200*time.Millisecond, func() bool { return h.rejected.Load() > before })
		w.to = time.Now()
		var unsure bool
		unsure, err = l.resume(ctx, process, first)
		l.commands.mutex.Lock()
		if !h.doubtful {
			l.commands.windows = append(l.commands.windows, w)
		}
		l.commands.mutex.Unlock()
		h.doubtful = h.doubtful || unsure
	}
	if err != nil && l.ctx.Err() == nil {
		l.fleet.t.Errorf("suspend %s, and resume it: %v", process, err)
	}
}

// resumeStray resumes a process that rejects calls although no client has suspended it. This
// happens if an engine that was disconnected executes an old command late.
func (l *load) resumeStray(ctx context.Context, process string, first int) {
	h := l.commands.hold(process)
	h.rejected.Add(1)
	if !h.mutex.TryLock() {
		return
	}
	defer h.mutex.Unlock()
	unsure, err := l.resume(ctx, process, first)
	h.doubtful = h.doubtful || unsure
	if err != nil && !errors.Is(err, errBroken) && l.ctx.Err() == nil { // with errBroken, it is in ERROR again
		l.fleet.t.Errorf("resume %s: %v", process, err)
	}
}

// runChild makes a process start a child, and cancels the child, by a command of the parent or as a
// client.
func (l *load) runChild(parent string, number, seq int, command bool) {
	child := fmt.Sprintf("child-c%d-%d", number, seq)
	start := &entry{process: parent, op: fmt.Sprintf("c%d-%d%s%s", number, seq, askStart, child)}
	if l.perform(start, number); start.outcome != acked {
		return
	}
	if command {
		l.perform(&entry{process: parent, op: fmt.Sprintf("c%d-%d%s%s", number, seq, askCancel, child)}, number)
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, testTimeout)
	defer cancel()
	unsure, err := l.sendCommand(ctx, number, func(ctx context.Context, c *client.Client) error {
		_, err := c.Process.CancelProcess(ctx,
			&progressorv1.CancelProcessRequest{Namespace: namespace, ProcessId: child, Reason: "chaos"})
		return err
	})
	if unsure && errors.Is(err, errBroken) {
		err = nil // an earlier try has cancelled it
	}
	if err != nil {
		if l.ctx.Err() == nil {
			l.fleet.t.Errorf("cancel %s: %v", child, err)
		}
		return
	}
	l.commands.mutex.Lock()
	defer l.commands.mutex.Unlock()
	l.commands.cancelled = append(l.commands.cancelled, child)
}

// randomCommands sends commands to processes that never break.
func randomCommands(processes int) func(*load, int, int, *rand.Rand) bool {
	return func(l *load, number, seq int, random *rand.Rand) bool {
		process := processID(2 * random.IntN(processes/2))
		switch kind := random.IntN(100); {
		case kind < 2:
			l.runChild(process, number, seq, kind == 0)
		case kind < 3:
			l.suspend(process, number)
		default:
			return false
		}
		return true
	}
}

// callsWhileSuspended finds calls that began and ended while their process was suspended. None of
// them may have been executed. wrong lists those that were.
func callsWhileSuspended(windows []window, entries []*entry) (rejected int, wrong []string) {
	byProcess := map[string][]window{}
	for _, w := range windows {
		byProcess[w.process] = append(byProcess[w.process], w)
	}
	for _, e := range entries {
		for _, w := range byProcess[e.process] {
			if e.begun.Before(w.from) || e.ended.After(w.to) {
				continue
			}
			if e.outcome == acked {
				wrong = append(wrong,
					fmt.Sprintf("%s of %s was acknowledged while the process was suspended", e.op, e.process))
				continue
			}
			rejected++
		}
	}
	return rejected, wrong
}
