package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// A generation of the database lasts until a failover or a restore. Either may lose the last
// commits, and with them the numbers that were drawn from the sequences. Every new connection
// confirms the generation. When a connection finds that the server has changed, the sequences move
// beyond all numbers that were issued before (see confirm_generation in the migrations), so that no
// number is issued twice. The engine then compares everything that it knows about tasks with the
// new server.
type generations struct {
	mu      sync.Mutex
	current uuid.UUID
	changed atomic.Pointer[func()]
	// The highest numbers that this engine has received from the database.
	taskID, fencingToken atomic.Int64
}

// RecordNumbers records numbers that the database has issued, so that they are not issued again
// after a failover that lost them. It is safe for concurrent use.
func (s *Store) RecordNumbers(taskID, fencingToken int64) {
	raise(&s.generations.taskID, taskID)
	raise(&s.generations.fencingToken, fencingToken)
}

func raise(highest *atomic.Int64, n int64) {
	for {
		old := highest.Load()
		if n <= old || highest.CompareAndSwap(old, n) {
			return
		}
	}
}

// OnNewGeneration sets the function to call after a database failover or restore, which may have
// lost commits. It must not block.
func (s *Store) OnNewGeneration(changed func()) { s.generations.changed.Store(&changed) }

// confirm confirms the generation on a new connection. It fails on a standby.
func (s *Store) confirm(ctx context.Context, conn *pgx.Conn) error {
	g := &s.generations
	generation, err := s.q.ConfirmGeneration(ctx, conn, dbsqlc.ConfirmGenerationParams{
		SeenTaskID: g.taskID.Load(), SeenFencingToken: g.fencingToken.Load(),
	})
	if state := SQLState(err); state == stateUndefinedFunction || state == stateInvalidSchema {
		return nil // the schema is older or missing: Open reports a better error
	}
	if err != nil {
		return fmt.Errorf("confirm the generation of the database: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock() // other connections are not used before changed has returned
	before := g.current
	g.current = generation
	if before == uuid.Nil || before == generation {
		return nil
	}
	s.metrics.generations.Inc()
	s.log.WarnContext(ctx, "the database failed over or was restored; lost tasks will be reported",
		"generation", generation, "before", before)
	s.callQueues.reset()
	if changed := g.changed.Load(); changed != nil {
		(*changed)()
	}
	return nil
}

// MissingTasks returns the indexes of tasks that do not exist in the database.
func (s *Store) MissingTasks(ctx context.Context, refs []TaskRef) ([]int32, error) {
	var arg dbsqlc.MissingTasksParams
	for n, r := range refs {
		arg.Append(dbsqlc.MissingTasksItem{Ord: int32(n), Key: r.Key, TaskID: r.TaskID})
	}
	missing, err := s.q.MissingTasks(ctx, s.kept, arg)
	return missing, mapped("find missing tasks", err)
}

// AttemptRef identifies an attempt.
type AttemptRef struct {
	Key          process.Key
	FencingToken int64
}

// MissingAttempts returns the indexes of attempts that no longer hold their process.
func (s *Store) MissingAttempts(ctx context.Context, refs []AttemptRef) ([]int32, error) {
	var arg dbsqlc.MissingAttemptsParams
	for n, r := range refs {
		arg.Append(dbsqlc.MissingAttemptsItem{
			Ord: int32(n), Key: r.Key, FencingToken: r.FencingToken,
		})
	}
	missing, err := s.q.MissingAttempts(ctx, s.kept, arg)
	return missing, mapped("find missing attempts", err)
}

// CancelledAttempts returns at most 1,000 attempts of jobs whose cancel was requested and that this
// node runs without a lease, see engine.Kind.CancelsAttempts.
func (s *Store) CancelledAttempts(ctx context.Context) ([]AttemptRef, error) {
	rows, err := s.q.CancelledAttempts(ctx, s.kept, s.nodeID.Load())
	refs := make([]AttemptRef, len(rows))
	for n, r := range rows {
		refs[n] = AttemptRef{
			Key: process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID}, FencingToken: r.FencingToken,
		}
	}
	return refs, mapped("find cancelled attempts", err)
}

// errNotReplicated means that a commit may not have reached the synchronous standby.
var errNotReplicated = errors.New("committed on the primary, but the wait for the synchronous standby was cancelled")

// notReplicated is the key in a connection's CustomData that noteCancelledWait sets.
const notReplicated = "not replicated"

// noteCancelledWait is the OnNotice callback of all connections. If the wait of a commit for the
// synchronous standby is cancelled, PostgreSQL keeps the commit, reports success and sends only a
// warning. Such a commit is lost if the primary is lost. The text of the warning depends on
// lc_messages, but the name of its routine does not.
func noteCancelledWait(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[notReplicated] = true
	}
}

// replicated returns errNotReplicated if a commit on conn since the last call was not replicated.
func (s *Store) replicated(conn *pgx.Conn) error {
	data := conn.PgConn().CustomData()
	if _, cancelled := data[notReplicated]; !cancelled {
		return nil
	}
	delete(data, notReplicated)
	s.metrics.unreplicated.Inc()
	return errNotReplicated
}

// write runs statements whose commit is acknowledged to a client, on a connection of the general
// pool. It returns an error if the commit was not replicated.
func (s *Store) write(ctx context.Context, write func(*pgx.Conn) error) error {
	conn, err := s.general.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return s.writeOn(conn.Conn(), write)
}

func (s *Store) writeOn(conn *pgx.Conn, write func(*pgx.Conn) error) error {
	if err := write(conn); err != nil {
		return err
	}
	return s.replicated(conn)
}

// confirmCommits returns when the synchronous standby, if there is one, has all earlier commits. It
// makes one more commit and waits for it: this commit comes after all others in the WAL.
func (l *lane) confirmCommits(ctx context.Context) error {
	n, err := l.store.q.ConfirmCommits(ctx, l.conn)
	if err == nil && n == 0 {
		err = errors.New("table database_generation has no row")
	}
	if err == nil {
		err = l.store.replicated(l.conn)
	}
	if err != nil {
		return fmt.Errorf("confirm commits: %w", err)
	}
	return nil
}
