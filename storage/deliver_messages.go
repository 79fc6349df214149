package storage

import (
	"context"
	"slices"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

const (
	// deliverLimit is the maximum number of messages of one process that a flush delivers. The next
	// flush continues.
	deliverLimit = 16
	// deliverBytes is the size with which a delivery counts toward the limit of a flush. The engine
	// does not send the messages to PostgreSQL, but PostgreSQL writes them.
	deliverBytes = 64 << 10
)

// The outcomes of a delivery.
const (
	Delivered      = "delivered"
	MemberRecorded = "noted" // the end of a group member was recorded, and the group was marked for a check
	// TargetExists means that nothing was started, because the process exists or another job holds
	// the unique key.
	TargetExists   = "exists"
	MessageHeld    = "held"      // the process is SUSPENDED or in ERROR: the message waits
	TargetFull     = "full"      // too many tasks wait in the process: all messages to it wait
	TargetNotFound = "not_found" // dropped: no such process or, for a start, no such namespace
	TargetEnded    = "ended"     // dropped: the process has ended, or is a job, which accepts no such message
)

// Delivery is the result of delivering one message.
type Delivery struct {
	Kind    MessageKind
	Outcome string
	Later   bool // a start with a start time in the future
	Overdue bool // only for a cancel: its grace period is 0, so EndOverdueCancel ends the process now
}

type deliverItem struct {
	item
	deliveries []Delivery
	more       bool
}

// DeliverMessages delivers the messages for a process in order, and reports whether there may be
// more. It deletes their rows in the same transaction, so that each message is delivered once even
// if several nodes try.
func (s *Store) DeliverMessages(target process.Key) (deliveries []Delivery, more bool, err error) {
	it := &deliverItem{item: newItem(target, deliverBytes, true)}
	err = s.submit(it)
	return it.deliveries, it.more, err
}

// deliverBatch holds the deliveries of a flush.
type deliverBatch struct {
	store    *Store
	items    []*deliverItem
	byTarget map[process.Key][]*deliverItem
	keys     keysParams // keys of the targets, in their order
	modes    []int32    // event modes of the targets
	outgoing *outgoing
}

// deliverStages returns the statements of the deliveries. Starts run before messages that were sent
// to the started process. The stage between them locks the processes that starts have created, here
// or on another node, because these could not be locked before. out collects the targets of the
// resulting messages.
func deliverStages(s *Store, items []*deliverItem, out *outgoing) []stage {
	if len(items) == 0 {
		return nil
	}
	b := &deliverBatch{
		store: s, items: items, byTarget: make(map[process.Key][]*deliverItem, len(items)), outgoing: out,
	}
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
	b.modes = s.EventModes(b.keys.namespaces)
	return []stage{b.lockKeys, b.starts, s.tryLockStage(lockRequest{keys: targets, again: true}), b.notifies, b.cancels}
}

func (b *deliverBatch) add(namespace, processID string, d Delivery, more bool) {
	for _, it := range b.byTarget[process.Key{Namespace: namespace, ProcessID: processID}] {
		it.deliveries = append(it.deliveries, d)
		it.more = it.more || more
	}
}

func (b *deliverBatch) lockKeys(ctx context.Context, db DB) error {
	return b.store.q.LockMessageKeys(ctx, db, dbsqlc.LockMessageKeysParams{
		Namespaces: b.keys.namespaces, ProcessIds: b.keys.processIDs, Lim: deliverLimit,
	})
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
		Namespaces: b.keys.namespaces, ProcessIds: b.keys.processIDs, Modes: b.modes, Lim: deliverLimit,
		GraceUs: process.DefaultCancelGrace.Microseconds(),
	})
	for _, r := range rows {
		d := Delivery{Kind: MessageKind(r.Kind), Outcome: r.Outcome, Overdue: r.Overdue}
		b.add(r.Namespace, r.ProcessID, d, r.More)
		if r.ParentProcessID != "" {
			b.outgoing.targets = append(b.outgoing.targets, process.Key{
				Namespace: r.ParentNamespace, ProcessID: r.ParentProcessID,
			})
		}
	}
	return err
}
