package storage

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// NodeDescription describes a node to other nodes and to operators.
type NodeDescription struct {
	Address      string
	Version      string
	RequestsOnly bool // it runs no tasks
}

// RegisterNode creates the row of this node, and returns the ID under which the node claims tasks.
func (s *Store) RegisterNode(ctx context.Context, n NodeDescription) (int64, error) {
	id, err := s.q.InsertNode(ctx, s.beats, dbsqlc.InsertNodeParams{
		Address: n.Address, Version: n.Version, MaxConnections: int32(s.maxConnections), RequestsOnly: n.RequestsOnly,
	})
	if err != nil {
		return 0, mapped("register node", err)
	}
	s.nodeID.Store(id)
	return id, nil
}

// NodeReport is the state of a node in its heartbeats.
type NodeReport struct {
	Draining       bool
	TasksPerSecond float64       // in the last minute
	TimerLateness  time.Duration // 99th percentile of the last minute; negative if no timer fired
}

// Beat stores a heartbeat of this node. It reports whether an operator asked the node to drain. The
// error is process.ErrFenced if another node has declared this one dead or deleted its row. The
// node must then register again.
func (s *Store) Beat(ctx context.Context, p NodeReport) (drain bool, err error) {
	drain, err = s.q.Beat(ctx, s.beats, dbsqlc.BeatParams{
		NodeID: s.nodeID.Load(), Draining: p.Draining, TasksPerSecond: p.TasksPerSecond,
		LatenessUs: max(p.TimerLateness.Microseconds(), -1),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, process.ErrFenced
	}
	return drain, mapped("beat", err)
}

// NodeBeat is the last heartbeat of a node.
type NodeBeat = dbsqlc.ListBeatsRow

// ListBeats returns the heartbeats of all nodes that are not dead.
func (s *Store) ListBeats(ctx context.Context) ([]NodeBeat, error) {
	rows, err := s.q.ListBeats(ctx, s.kept)
	return rows, mapped("list heartbeats", err)
}

// DeclareDead marks a node as dead and reports whether it did. It does nothing if the node has sent
// another heartbeat since beat.
func (s *Store) DeclareDead(ctx context.Context, nodeID int64, beat time.Time) (bool, error) {
	n, err := s.q.DeclareDead(ctx, s.kept, dbsqlc.DeclareDeadParams{NodeID: nodeID, BeatTime: beat})
	return n > 0, mapped("declare a node dead", err)
}

// DeleteNode deletes the node's row, at the end of an orderly stop.
func (s *Store) DeleteNode(ctx context.Context) error {
	return mapped("delete node", s.q.DeleteNode(ctx, s.beats, s.nodeID.Load()))
}

// DeleteDeadNodes deletes nodes that have been dead for an hour and hold no tasks.
func (s *Store) DeleteDeadNodes(ctx context.Context) error {
	return mapped("delete dead nodes", s.q.DeleteDeadNodes(ctx, s.kept))
}

// MergeMetadataIndex moves new entries of the index of metadata from their list into the index, so
// that no flush has to do this and searches have less to read. It does nothing in a portable
// database, or if this store has not flushed since the last merge.
func (s *Store) MergeMetadataIndex(ctx context.Context) error {
	if s.portable {
		return nil
	}
	if !s.hasFlushed.Swap(false) {
		return nil
	}
	err := s.q.MergeMetadataIndex(ctx, s.general)
	if err != nil {
		s.hasFlushed.Store(true)
	}
	return mapped("merge the index of metadata", err)
}

// ListNodes lists the nodes in the database by ID, at most the newest 1,000.
func (s *Store) ListNodes(ctx context.Context) ([]Node, error) {
	rows, err := s.q.ListNodes(ctx, s.general)
	return rows, mapped("list nodes", err)
}

// Load is the throughput of all live nodes in the last minute, and the largest 99th percentile of
// their timer lateness.
type Load = dbsqlc.NodesLoadRow

// NodesLoad combines the reports of the live nodes. A node without a heartbeat for zombieAfter is
// not live.
func (s *Store) NodesLoad(ctx context.Context, zombieAfter time.Duration) (Load, error) {
	row, err := s.q.NodesLoad(ctx, s.kept, zombieAfter.Microseconds())
	return row, mapped("load of the nodes", err)
}

// DrainNode asks a node to drain. It returns process.ErrNodeNotFound if the node does not exist.
func (s *Store) DrainNode(ctx context.Context, nodeID int64, by ...process.Actor) (Node, error) {
	var row dbsqlc.DrainNodeRow
	err := s.audited(ctx, note{method: "DrainNode", subject: strconv.FormatInt(nodeID, 10)}, by,
		func(db DB) (err error) {
			row, err = s.q.DrainNode(ctx, db, nodeID)
			return err
		})
	return Node(row), noRow(mapped("drain node", err), process.ErrNodeNotFound)
}

// NodeID returns the ID of this node.
func (s *Store) NodeID() int64 { return s.nodeID.Load() }

// forgetBatch is the maximum number of rows that one statement of Forget deletes.
const forgetBatch = 5000

// deadLetterRetention is how long dead letters are kept.
const deadLetterRetention = 24 * time.Hour

// forgotten records the time up to which this node has deleted keys and answers. Once an hour, the
// node starts with the oldest rows again, to delete rows that it skipped because another session
// had locked them.
type forgotten struct {
	mutex sync.Mutex
	to    time.Time
	began time.Time
}

// forgetFromStartEvery is the interval at which Forget starts with the oldest rows again.
const forgetFromStartEvery = time.Hour

// Forget deletes old idempotency keys, answers of removed processes and dead letters. more is true
// if there may be more.
func (s *Store) Forget(ctx context.Context, retention time.Duration) (more bool, err error) {
	f := &s.forgotten
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if time.Since(f.began) > forgetFromStartEvery {
		f.to, f.began = time.Time{}, time.Now()
	}
	requests, err := s.q.ForgetRequests(ctx, s.general, dbsqlc.ForgetRequestsParams{
		Since: f.to, RetentionUs: retention.Microseconds(), Lim: forgetBatch,
	})
	if err != nil {
		return false, mapped("delete expired requests", err)
	}
	answers, err := s.q.ForgetAnswers(ctx, s.general, dbsqlc.ForgetAnswersParams{
		Since: f.to, RetentionUs: retention.Microseconds(), Lim: forgetBatch,
	})
	if err != nil {
		return false, mapped("delete old answers", err)
	}
	if requests.Found < forgetBatch && answers < forgetBatch {
		f.to = requests.ForgottenTo
	}
	letters, err := s.q.ForgetDeadLetters(ctx, s.general, dbsqlc.ForgetDeadLettersParams{
		RetentionUs: deadLetterRetention.Microseconds(), Lim: forgetBatch,
	})
	return requests.Found == forgetBatch || answers == forgetBatch || letters == forgetBatch,
		mapped("delete old dead letters", err)
}
