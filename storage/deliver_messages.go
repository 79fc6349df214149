package storage

import (
	"context"
	"slices"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

const (
	// deliverLimit is how many messages of one process one flush delivers; the next flush goes on.
	deliverLimit = 16
	// deliverBytes is what a delivery counts for in a flush: its messages do not cross the line, but the server writes them.
	deliverBytes = 64 << 10
)

// The outcomes of a delivery.
const (
	Delivered      = "delivered"
	MemberNoted    = "noted"     // the end of a member, with the job that several workers run: that waits to be looked at
	TargetExists   = "exists"    // a start: the process exists, or another job holds the unique key, and nothing happened
	MessageHeld    = "held"      // the process is SUSPENDED or in ERROR: the message waits
	TargetFull     = "full"      // too many tasks wait in the process: all messages to it wait
	TargetNotFound = "not_found" // no such process, or for a start no such namespace: dropped
	TargetEnded    = "ended"     // the process is at its end, or is a job and takes no such message: dropped
)

// Delivery is what became of one message.
type Delivery struct {
	Kind    MessageKind
	Outcome string
	Later   bool // of a start: at its time
	Overdue bool // of a cancel: its grace is 0, so EndOverdueCancel ends the process now
}

type deliverItem struct {
	item
	deliveries []Delivery
	more       bool
}

// DeliverMessages delivers what stands for a process, in the order of the messages, and tells whether there may be more. The rows
// that it deletes are what makes it happen once: whoever else delivers to the same process finds them gone.
func (s *Store) DeliverMessages(target process.Key) (deliveries []Delivery, more bool, err error) {
	it := &deliverItem{item: newItem(target, deliverBytes, true)}
	err = s.submit(it)
	return it.deliveries, it.more, err
}

// deliverBatch are the deliveries of a flush.
type deliverBatch struct {
	store    *Store
	items    []*deliverItem
	byTarget map[process.Key][]*deliverItem
	keys     keysParams // of the targets, in their order
	modes    []int32    // of their events
	outgoing *outgoing
}

// deliverStages: a start comes before what was sent to the process after it. The lock between them is for processes that the starts
// have made, here or on another node: no first statement could lock these. told takes whom the deliveries have said something.
func deliverStages(s *Store, items []*deliverItem, told *outgoing) []stage {
	if len(items) == 0 {
		return nil
	}
	b := &deliverBatch{store: s, items: items, byTarget: make(map[process.Key][]*deliverItem, len(items)), outgoing: told}
	for _, it := range items {
		b.byTarget[it.key] = append(b.byTarget[it.key], it)
	}
	targets := make([]process.Key, 0, len(b.byTarget))
	for k := range b.byTarget {
		targets = append(targets, k)
	}
	slices.SortFunc(targets, process.Key.Compare)
	for _, k := range targets {
		b.keys.add(k)
	}
	b.modes = s.eventModes(b.keys.namespaces)
	return []stage{b.lockKeys, b.starts, s.tryLockStage(targets), b.notifies, b.cancels}
}

func (b *deliverBatch) add(namespace, processID string, d Delivery, more bool) {
	for _, it := range b.byTarget[process.Key{Namespace: namespace, ProcessID: processID}] {
		it.deliveries = append(it.deliveries, d)
		it.more = it.more || more
	}
}

func (b *deliverBatch) lockKeys(ctx context.Context, db DB) error {
	return b.store.q.LockMessageKeys(ctx, db, dbsqlc.LockMessageKeysParams{Namespaces: b.keys.namespaces, ProcessIds: b.keys.processIDs, Lim: deliverLimit})
}

func (b *deliverBatch) starts(ctx context.Context, db DB) error {
	rows, err := b.store.q.DeliverStarts(ctx, db, dbsqlc.DeliverStartsParams{
		Namespaces: b.keys.namespaces, ProcessIds: b.keys.processIDs, Modes: b.modes, Lim: deliverLimit,
	})
	for _, it := range b.items {
		it.deliveries, it.more = nil, false
	}
	for _, r := range rows {
		b.add(r.Namespace, r.ProcessID, Delivery{Kind: MessageKind(r.Kind), Outcome: r.Outcome, Later: r.Later}, r.More)
	}
	return err
}

func (b *deliverBatch) notifies(ctx context.Context, db DB) error {
	rows, err := b.store.q.DeliverNotifies(ctx, db, dbsqlc.DeliverNotifiesParams{
		Namespaces: b.keys.namespaces, ProcessIds: b.keys.processIDs, Lim: deliverLimit,
		HoldLim: queueLimit(len(b.keys.namespaces)), MaxTasks: maxQueuedTasks,
	})
	for _, r := range rows {
		b.add(r.Namespace, r.ProcessID, Delivery{Kind: MessageKind(r.Kind), Outcome: r.Outcome}, r.More)
	}
	return err
}

func (b *deliverBatch) cancels(ctx context.Context, db DB) error {
	rows, err := b.store.q.DeliverCancels(ctx, db, dbsqlc.DeliverCancelsParams{
		Namespaces: b.keys.namespaces, ProcessIds: b.keys.processIDs, Modes: b.modes, Lim: deliverLimit, GraceUs: process.DefaultCancelGrace.Microseconds(),
	})
	for _, r := range rows {
		d := Delivery{Kind: MessageKind(r.Kind), Outcome: r.Outcome, Overdue: r.Overdue}
		b.add(r.Namespace, r.ProcessID, d, r.More)
		if r.ParentProcessID != "" {
			b.outgoing.targets = append(b.outgoing.targets, process.Key{Namespace: r.ParentNamespace, ProcessID: r.ParentProcessID})
		}
	}
	return err
}
