package sinks

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/storage/changes"
)

const (
	// noticeChannel is the NOTIFY channel on which a node announces that it has recorded changes
	// for the sinks of other nodes.
	noticeChannel = "progressor_changes"
	// noticeGap is the minimum time between two statements with notices.
	noticeGap = 10 * time.Millisecond
)

// notices notifies the nodes that deliver when this node has recorded changes for their sinks. The
// notices are hints. Without them, a sink finds the changes when it reads again. No notices are
// sent for a namespace that has no sink on another node.
type notices struct {
	sinks *Sinks
	stops map[string]func() // namespaces with sinks on other nodes; used only by the runner
	woken chan struct{}

	mu      sync.Mutex
	changed map[string]struct{} // namespaces to announce
}

func newNotices(s *Sinks) *notices {
	return &notices{
		sinks: s, stops: map[string]func(){}, woken: make(chan struct{}, 1), changed: map[string]struct{}{},
	}
}

// follow makes the runner announce the changes of the namespaces that have a sink for which another
// node delivers.
func (n *notices) follow(rows []changes.LeaseState, delivers func(*changes.LeaseState) bool) {
	elsewhere := map[string]bool{}
	for i := range rows {
		if row := &rows[i]; row.Runs && !row.Free && !delivers(row) {
			elsewhere[row.Namespace] = true
		}
	}
	for namespace := range elsewhere {
		if n.stops[namespace] == nil {
			n.stops[namespace] = n.sinks.store.OnChangesForOthers(namespace, func() { n.add(namespace) })
		}
	}
	for namespace, stop := range n.stops {
		if !elsewhere[namespace] {
			stop()
			delete(n.stops, namespace)
		}
	}
}

func (n *notices) add(namespace string) {
	n.mu.Lock()
	n.changed[namespace] = struct{}{}
	n.mu.Unlock()
	signal(n.woken)
}

func (n *notices) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	namespaces := slices.Sorted(maps.Keys(n.changed))
	clear(n.changed)
	return namespaces
}

// run sends notices until ctx is cancelled.
func (n *notices) run(ctx context.Context) {
	gap := time.NewTimer(0)
	defer gap.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-gap.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-n.woken:
		}
		err := n.send(ctx, n.take())
		if err != nil && ctx.Err() == nil && !failing { // log only once while the database is unavailable
			n.sinks.log.Warn("other nodes not notified; their sinks find the changes when they read again", "error",
				err)
		}
		failing = err != nil
		gap.Reset(noticeGap)
	}
}

func (n *notices) send(ctx context.Context, namespaces []string) error {
	if len(namespaces) == 0 {
		return nil
	}
	payloads := make([]string, len(namespaces))
	for i, namespace := range namespaces {
		payloads[i] = strconv.FormatInt(n.sinks.store.NodeID(), 10) + " " + namespace
	}
	limit, cancel := context.WithTimeout(ctx, n.sinks.limits.statement)
	defer cancel()
	return n.sinks.store.SendNotices(limit, noticeChannel, payloads)
}

// onNotice wakes the sinks and the watchers of a namespace in which another node has recorded
// changes. If payload is "", notices may have been lost, and it wakes the sinks and watchers of all
// namespaces.
func (s *Sinks) onNotice(payload string) {
	sender, namespace, _ := strings.Cut(payload, " ")
	if sender != strconv.FormatInt(s.store.NodeID(), 10) {
		s.store.WakeReaders(namespace)
	}
}

// signal sends to a channel with a buffer, unless it is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
