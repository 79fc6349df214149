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
	TargetExists   = "exists"    // a start: the process exists, and nothing happened
	MessageHeld    = "held"      // the process is SUSPENDED or in ERROR: the message waits
	TargetNotFound = "not_found" // no such process, or for a start no such namespace: dropped
	TargetEnded    = "ended"     // the process is at its end: dropped
)

// Delivery is what became of one message.
type Delivery struct {
	Kind    MessageKind
	Outcome string
	Later   bool // of a start: at its time
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

// deliverStages: a start comes before what was sent to the process after it. The lock between them is for processes that the starts
// have made, here or on another node: no first statement could lock these.
func deliverStages(s *Store, items []*deliverItem) []stage {
	if len(items) == 0 {
		return nil
	}
	byTarget := make(map[process.Key][]*deliverItem, len(items))
	for _, it := range items {
		byTarget[it.key] = append(byTarget[it.key], it)
	}
	targets := make([]process.Key, 0, len(byTarget))
	for k := range byTarget {
		targets = append(targets, k)
	}
	slices.SortFunc(targets, process.Key.Compare)
	keys := keysParams{}
	for _, k := range targets {
		keys.add(k)
	}
	add := func(namespace, processID, kind, outcome string, later, more bool) {
		for _, it := range byTarget[process.Key{Namespace: namespace, ProcessID: processID}] {
			it.deliveries = append(it.deliveries, Delivery{Kind: MessageKind(kind), Outcome: outcome, Later: later})
			it.more = it.more || more
		}
	}
	return []stage{
		func(ctx context.Context, db DB) error {
			rows, err := s.q.DeliverStarts(ctx, db, dbsqlc.DeliverStartsParams{Namespaces: keys.namespaces, ProcessIds: keys.processIDs, Lim: deliverLimit})
			for _, it := range items {
				it.deliveries, it.more = nil, false
			}
			for _, r := range rows {
				add(r.Namespace, r.ProcessID, r.Kind, r.Outcome, r.Later, r.More)
			}
			return err
		},
		lockStage(s, targets),
		func(ctx context.Context, db DB) error {
			rows, err := s.q.DeliverNotifies(ctx, db, dbsqlc.DeliverNotifiesParams{Namespaces: keys.namespaces, ProcessIds: keys.processIDs, Lim: deliverLimit})
			for _, r := range rows {
				add(r.Namespace, r.ProcessID, r.Kind, r.Outcome, false, r.More)
			}
			return err
		},
		func(ctx context.Context, db DB) error {
			rows, err := s.q.DeliverCancels(ctx, db, dbsqlc.DeliverCancelsParams{
				Namespaces: keys.namespaces, ProcessIds: keys.processIDs, Lim: deliverLimit, GraceUs: process.DefaultCancelGrace.Microseconds(),
			})
			for _, r := range rows {
				add(r.Namespace, r.ProcessID, r.Kind, r.Outcome, false, r.More)
			}
			return err
		},
	}
}
