package engine

import (
	"context"
	"maps"
	"time"
)

const (
	// messageChannel is the NOTIFY channel of SQL functions that send messages.
	messageChannel = "progressor_messages"
	// taskChannel is the NOTIFY channel of nodes that store tasks but run none.
	taskChannel = "progressor_tasks"
	// answerChannel is the NOTIFY channel of nodes that run the tasks of such nodes.
	answerChannel = "progressor_answers"
	// noticeGap is the minimum time between two notices of a node. One notice covers everything
	// that happened before it.
	noticeGap = 10 * time.Millisecond
)

// notices sends NOTIFYs between nodes that only take requests and nodes that run tasks. If all
// nodes run tasks, no NOTIFY is sent, because a node that runs tasks knows without a notice which
// tasks it has stored and which have ended. Notices are only hints. Without them, polls find the
// tasks and answers later.
type notices struct {
	engine  *Engine
	channel string
	woken   chan struct{}
	failing bool // the last notice failed; used only by Run
}

func newNotices(e *Engine) *notices {
	n := &notices{engine: e, channel: answerChannel, woken: make(chan struct{}, 1)}
	if e.cfg.RequestsOnly {
		n.channel = taskChannel
	}
	return n
}

// stored announces tasks that this node has stored and does not run.
func (n *notices) stored() { signal(n.woken) }

// ended announces the end of a task, because a node that takes only requests may wait for it.
func (n *notices) ended() {
	if n.engine.peers.requestsOnly.Load() {
		signal(n.woken)
	}
}

// Run sends notices until ctx is cancelled.
func (n *notices) Run(ctx context.Context) error {
	gap := time.NewTimer(0)
	defer gap.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-gap.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.woken:
		}
		n.send(ctx)
		gap.Reset(noticeGap)
	}
}

func (n *notices) send(ctx context.Context) {
	limit, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := n.engine.store.SendNotice(limit, n.channel)
	if err != nil && ctx.Err() == nil && !n.failing { // log only once while the database is unavailable
		n.engine.log.Warn("other nodes not notified; they find the changes by polling", "channel", n.channel, "error",
			err)
	}
	n.failing = err != nil
}

// listen receives the NOTIFYs for this node until ctx is cancelled.
func (e *Engine) listen(ctx context.Context) error {
	heard := map[string]func(string){
		messageChannel: func(string) { signal(e.messages.woken) },
		taskChannel:    func(string) { e.wakeAll() },
	}
	if e.cfg.RequestsOnly {
		heard = map[string]func(string){answerChannel: func(string) { e.waiters.endedElsewhere() }}
	}
	for _, k := range e.kinds {
		maps.Copy(heard, k.Hears)
	}
	maps.Copy(heard, e.workers.Hears())
	e.store.Listen(ctx, heard, func(up bool) {
		e.messages.listening(up)
		for _, f := range heard { // notices may have been lost
			f("")
		}
	})
	return nil
}
