package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Constraint is a stored constraint on jobs.
type Constraint struct {
	Name, Match, Key string
	MaxRunning       int32 // 0 means no limit
	RateCount        int32 // 0 means no rate limit
	RatePer          time.Duration
	RateBurst        int32
}

// Subject has the fields of a job that constraints evaluate.
type Subject struct {
	Name     string
	Args     []byte // JSON; nil means null
	Metadata []byte // JSON object; nil means empty
	Tags     []byte // JSON array of strings; nil means empty
	Priority int32
}

// Constrained holds the constraint keys of a job.
type Constrained struct {
	Version int64             // version of the constraints under which it was evaluated; 0 if there are none
	Keys    map[string]string // by name of the constraint
}

// KeyOf returns the name of a key queue: the name of the constraint, =, and the value. A constraint
// name contains no =.
func KeyOf(constraint, key string) string { return constraint + "=" + key }

// KeyNames returns the key queues of all keys, sorted.
func (c Constrained) KeyNames() []string {
	lines := make([]string, 0, len(c.Keys))
	for _, name := range slices.Sorted(maps.Keys(c.Keys)) {
		lines = append(lines, KeyOf(name, c.Keys[name]))
	}
	return lines
}

// FirstKey returns the key queue in which the job waits first, or "" if it needs no key.
func (c Constrained) FirstKey() string {
	if len(c.Keys) == 0 {
		return ""
	}
	return c.KeyNames()[0]
}

// JSON returns the keys as stored in jobs.constraint_keys, or "" if there are none.
func (c Constrained) JSON() string {
	if len(c.Keys) == 0 {
		return ""
	}
	text, _ := json.Marshal(c.Keys) // a map of strings
	return string(text)
}

func readConstraints(ctx context.Context, db storage.DB, namespace string) ([]Constraint, error) {
	rows, err := dbsqlc.New().ReadConstraints(ctx, db, namespace)
	all := make([]Constraint, len(rows))
	for n, r := range rows {
		all[n] = Constraint{Name: r.Name, Match: r.Match, Key: r.Key, MaxRunning: r.MaxRunning}
		if r.RateCount != nil {
			all[n].RateCount, all[n].RatePer, all[n].RateBurst = *r.RateCount, *r.RatePer, *r.RateBurst
		}
	}
	return all, err
}

// ConstraintUse is a constraint with its current use.
type ConstraintUse struct {
	Constraint
	// Running jobs hold a key and run, Held ones hold a key but are not yet claimed, and Waiting
	// ones wait for a key.
	Running, Held, Waiting int64
	NextFreeTime           time.Time // zero if there is no rate to wait for
}

// ListConstraints returns the constraints of a namespace by name.
func ListConstraints(ctx context.Context, s *storage.Store, namespace string) (all []ConstraintUse, err error) {
	err = s.Read(ctx, "list constraints", func(ctx context.Context, tx pgx.Tx) error {
		constraints, err := readConstraints(ctx, tx, namespace)
		if err != nil {
			return err
		}
		counts, err := dbsqlc.New().CountConstraints(ctx, tx, namespace)
		for n, c := range counts { // both read in one snapshot, in the same order
			all = append(all, ConstraintUse{
				Constraint: constraints[n], Running: c.Running, Held: c.Held, Waiting: c.Waiting,
			})
			if c.NextFreeTime.Unix() > 0 {
				all[n].NextFreeTime = c.NextFreeTime
			}
		}
		return err
	})
	return all, err
}

// QueuePosition is the position of a job in a key queue.
type QueuePosition struct {
	Before    int // jobs ahead, up to the requested limit
	Held      int
	Holders   []string  // the first three holders of the key
	Unstarted int       // holders that are not yet claimed
	NextTime  time.Time // when the bucket allows a start; zero means now

	ReservedBy string // the job for which the key is reserved, or empty
}

// ReadQueuePosition returns the position of a job that waits for a key. It counts at most limit
// jobs ahead of it.
func ReadQueuePosition(
	ctx context.Context, s *storage.Store, r *Row, limit int,
) (at QueuePosition, constraints []Constraint, err error) {
	err = s.Read(ctx, "read queue position", func(ctx context.Context, tx pgx.Tx) (err error) {
		if constraints, err = readConstraints(ctx, tx, r.Namespace); err != nil {
			return err
		}
		row, err := dbsqlc.New().PositionInKeyQueue(ctx, tx, dbsqlc.PositionInKeyQueueParams{
			Namespace: r.Namespace, Line: r.Line, Priority: r.Priority, Round: r.Round, TaskID: r.TaskID,
			Lim: int32(limit),
		})
		at = QueuePosition{
			Before: int(row.Before), Held: int(row.Held), Holders: row.Holders, Unstarted: int(row.Unstarted),
			ReservedBy: row.ReservedBy,
		}
		if row.NextTime.Unix() > 0 {
			at.NextTime = row.NextTime
		}
		return err
	})
	return at, constraints, err
}

// RequeueForKeys is an effect that puts a job back into its key queue after an attempt. Its keys
// are freed. It is used for a job that has another attempt, if the job holds keys or must be
// evaluated again.
type RequeueForKeys struct{}

// Bytes implements storage.Effect.
func (RequeueForKeys) Bytes() int { return 100 }

// Batch implements storage.Effect.
func (RequeueForKeys) Batch() string { return "RequeueForKeys" }

// Write implements storage.Effect.
func (RequeueForKeys) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.RequeueForKeysParams
	for _, r := range all {
		a.Append(dbsqlc.RequeueForKeysItem{
			Key: r.Key, TaskID: r.TaskID, FencingToken: r.FencingToken,
		})
	}
	return dbsqlc.New().RequeueForKeys(ctx, db, a)
}

// ConstraintTx is a transaction that has exclusive access to the constraints of a namespace, across
// all nodes: no other transaction assigns keys to jobs or changes constraints.
type ConstraintTx struct {
	Namespace   string
	Version     int64
	Constraints []Constraint // set by Load
	Now         time.Time
	Changed     time.Time // when Version increased
	Swept       time.Time // start of the last completed sweep; zero if there was none
	Cursor      *string   // position of the current sweep; nil if there is none
	// Next is the time from the beginning of the transaction until Due or DueBuckets have results.
	// It is negative if no job and no bucket waits for a time.
	Next time.Duration
	// Paused has the paused job names, whose jobs get no keys. The caller sets it.
	Paused []string

	ctx context.Context
	db  storage.DB
	q   *dbsqlc.Queries

	mode int32 // event mode of the namespace
}

// RunConstraintTx runs write in a transaction. found is false if the namespace has never had
// constraints.
func RunConstraintTx(
	ctx context.Context, s *storage.Store, namespace string, write func(*ConstraintTx) error,
) (found bool, err error) {
	err = s.TakeTasks(ctx, "constraints of "+namespace, func(ctx context.Context, db storage.DB) error {
		t := &ConstraintTx{Namespace: namespace, ctx: ctx, db: db, q: dbsqlc.New(), mode: s.EventModeOf(namespace)}
		err := t.begin()
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		found = true
		return write(t)
	})
	return found, err
}

func (t *ConstraintTx) begin() error {
	set, err := t.q.LockConstraints(t.ctx, t.db, t.Namespace)
	if err != nil {
		return err
	}
	t.Version, t.Changed, t.Cursor, t.Now = set.Version, set.ChangedTime, set.Cursor, set.Now
	t.Next = time.Duration(set.NextUs) * time.Microsecond
	if set.SweptTime != nil {
		t.Swept = *set.SweptTime
	}
	return nil
}

// Load reads the constraints.
func (t *ConstraintTx) Load() (err error) {
	t.Constraints, err = readConstraints(t.ctx, t.db, t.Namespace)
	return err
}

// PutConstraint stores a constraint and increments the version. after runs in the same transaction.
func PutConstraint(
	ctx context.Context, s *storage.Store, namespace string, c Constraint, by []process.Actor,
	after func(*ConstraintTx) error,
) error {
	return change(ctx, s, namespace, after, func(ctx context.Context, db storage.DB, q *dbsqlc.Queries) error {
		before, err := constraintJSON(ctx, db, namespace, c.Name)
		if err != nil {
			return err
		}
		err = q.PutConstraint(ctx, db, dbsqlc.PutConstraintParams{
			Namespace: namespace, Name: c.Name, Match: c.Match, Key: c.Key, MaxRunning: c.MaxRunning,
			RateCount: c.RateCount, RatePerUs: c.RatePer.Microseconds(), RateBurst: c.RateBurst,
		})
		if err != nil {
			return err
		}
		after, err := constraintJSON(ctx, db, namespace, c.Name)
		if err != nil {
			return err
		}
		change := storage.ConfigChange{Before: before, After: after}
		return change.Audit(ctx, db, "PutConstraint", namespace, c.Name, by)
	})
}

// DeleteConstraint deletes a constraint and increments the version. It returns
// process.ErrConstraintNotFound if the constraint does not exist. after runs in the same
// transaction.
func DeleteConstraint(
	ctx context.Context, s *storage.Store, namespace, name string, by []process.Actor, after func(*ConstraintTx) error,
) error {
	return change(ctx, s, namespace, after, func(ctx context.Context, db storage.DB, q *dbsqlc.Queries) error {
		before, err := constraintJSON(ctx, db, namespace, name)
		if err != nil {
			return err
		}
		n, err := q.DeleteConstraint(ctx, db, dbsqlc.DeleteConstraintParams{Namespace: namespace, Name: name})
		if err == nil && n == 0 {
			err = fmt.Errorf("constraint %q of namespace %q: %w", name, namespace, process.ErrConstraintNotFound)
		}
		if err != nil {
			return err
		}
		return storage.ConfigChange{Before: before}.Audit(ctx, db, "DeleteConstraint", namespace, name, by)
	})
}

// commandLockTimeout is how long a change of constraints waits for the transactions that assign
// keys, in milliseconds. On a busy machine, such a transaction may take longer than the
// lock_timeout of the hot path, whose statements are retried.
const commandLockTimeout = "5000"

func change(
	ctx context.Context, s *storage.Store, namespace string, after func(*ConstraintTx) error,
	write func(context.Context, storage.DB, *dbsqlc.Queries) error,
) error {
	return s.TakeTasks(ctx, "change constraints of "+namespace, func(ctx context.Context, db storage.DB) error {
		t := &ConstraintTx{Namespace: namespace, ctx: ctx, db: db, q: dbsqlc.New(), mode: s.EventModeOf(namespace)}
		if err := t.q.SetLockTimeout(ctx, db, commandLockTimeout); err != nil {
			return err
		}
		if err := t.q.ChangeConstraints(ctx, db, namespace); err != nil {
			return err
		}
		if err := write(ctx, db, t.q); err != nil {
			return err
		}
		if err := errors.Join(t.begin(), t.Load(), t.q.ForgetBuckets(ctx, db, namespace)); err != nil {
			return err
		}
		return after(t)
	})
}

// Due moves due jobs to their key queues, at most limit, and returns these queues.
func (t *ConstraintTx) Due(limit int32) ([]string, error) {
	return t.q.DueInLine(t.ctx, t.db, dbsqlc.DueInLineParams{Namespace: t.Namespace, Mode: t.mode, Lim: limit})
}

// DueBuckets returns key queues whose bucket allows a start again.
func (t *ConstraintTx) DueBuckets(limit int32) ([]string, error) {
	return t.q.DueBuckets(t.ctx, t.db, dbsqlc.DueBucketsParams{Namespace: t.Namespace, Lim: limit})
}

// Rest returns the time until Due or DueBuckets have results. It is negative if no job and no
// bucket waits for a time.
func (t *ConstraintTx) Rest() (time.Duration, error) {
	us, err := t.q.NextInLine(t.ctx, t.db, t.Namespace)
	return time.Duration(us) * time.Microsecond, err
}

// KeyState has the number of holders of a key, the state of the bucket of the key, and the job that
// has reserved the key.
type KeyState = dbsqlc.ReadLinesRow

// Read returns the state of key queues. rated reports for each queue whether its constraint has a
// rate.
func (t *ConstraintTx) Read(lines []string, rated []bool) ([]KeyState, error) {
	if len(lines) == 0 {
		return nil, nil
	}
	return t.q.ReadLines(t.ctx, t.db, dbsqlc.ReadLinesParams{Namespace: t.Namespace, Lines: lines, Rateds: rated})
}

// QueuedJob is a job at the front of a key queue that this transaction has locked.
type QueuedJob struct {
	ProcessID string
	TaskID    int64
	Line      string
	Subject          // complete if Stale; otherwise only name and priority
	Keys      []byte // JSON of its keys, or nil
	Stale     bool   // Keys are from an older version
	Given     bool   // set by Front: the job was given its key and waits for a slot; true for all jobs or for none
	WaitsFor  process.WaitsFor
	Since     time.Time // set by Front: when the job became able to run
}

// Front selects the first jobs of key queues.
type Front struct {
	Lines    []string
	Rooms    []int32 // maximum number of jobs of each queue
	Limit    int32   // maximum number of jobs of all queues together
	Reserved bool    // a key is reserved, so no job is Given its key
}

// Front locks the first jobs of key queues and returns them. If each job needs only the key of its
// queue, Front also gives all jobs their keys (see QueuedJob.Given). This takes one statement
// instead of three.
func (t *ConstraintTx) Front(f Front) ([]QueuedJob, error) {
	keys := make([]string, len(f.Lines))
	for n, line := range f.Lines {
		if name, key, ok := strings.Cut(line, "="); ok && !f.Reserved {
			keys[n] = Constrained{Keys: map[string]string{name: key}}.JSON()
		}
	}
	rows, err := t.q.TakeLines(t.ctx, t.db, dbsqlc.TakeLinesParams{
		Namespace: t.Namespace, Version: t.Version, Lines: f.Lines, Rooms: f.Rooms, Keys: keys, Lim: f.Limit,
		PausedNames: t.paused(),
	})
	all := make([]QueuedJob, len(rows))
	for n := range rows {
		r := &rows[n]
		all[n] = QueuedJob{
			ProcessID: r.ProcessID, TaskID: r.TaskID, Line: r.Line, Keys: r.ConstraintKeys, Stale: r.Stale,
			Given: r.Given, WaitsFor: process.WaitsForConstraint, Since: r.ScheduledTime,
			Subject: Subject{Name: r.Name, Args: r.Args, Metadata: r.Metadata, Tags: r.Tags, Priority: r.Priority},
		}
	}
	return all, err
}

// Move is the new position of a job.
type Move struct {
	ProcessID string
	TaskID    int64
	WaitsFor  process.WaitsFor
	Line      string // "" if it needs no key
	Evaluated bool   // store Keys
	Keys      map[string]string
	Holds     []string // queues whose key it gets
}

// Move moves jobs that this transaction has locked.
func (t *ConstraintTx) Move(moves []Move) error {
	if len(moves) == 0 {
		return nil
	}
	a := dbsqlc.MoveJobsParams{Version: t.Version}
	for _, m := range moves {
		a.Append(dbsqlc.MoveJobsItem{
			Key: process.Key{Namespace: t.Namespace, ProcessID: m.ProcessID}, TaskID: m.TaskID,
			WaitsFor: string(m.WaitsFor), Line: m.Line, Evaluated: m.Evaluated,
			Keys: Constrained{Keys: m.Keys}.JSON(),
		})
	}
	if err := t.q.MoveJobs(t.ctx, t.db, a); err != nil {
		return err
	}
	return t.Hold(moves)
}

// Reserve replaces the reservations of jobs. It deletes the reservations of the jobs in drop and
// returns their queues. reserve has the newly reserved queues by job.
func (t *ConstraintTx) Reserve(drop []string, reserve map[string][]string) (freed []string, err error) {
	if len(drop) > 0 {
		if freed, err = t.q.DropReservations(t.ctx, t.db, dbsqlc.DropReservationsParams{
			Namespace: t.Namespace, ProcessIds: drop,
		}); err != nil {
			return nil, err
		}
	}
	a := dbsqlc.ReserveKeysParams{Namespace: t.Namespace}
	for job, lines := range reserve {
		for _, line := range lines {
			a.Append(dbsqlc.ReserveKeysItem{ProcessID: job, Line: line})
		}
	}
	if len(a.Lines) == 0 {
		return freed, nil
	}
	return freed, t.q.ReserveKeys(t.ctx, t.db, a)
}

// Hold stores the keys that jobs were given.
func (t *ConstraintTx) Hold(moves []Move) error {
	h := dbsqlc.HoldKeysParams{Namespace: t.Namespace}
	for _, m := range moves {
		for _, line := range m.Holds {
			h.Append(dbsqlc.HoldKeysItem{ProcessID: m.ProcessID, Line: line})
		}
	}
	if len(h.Lines) == 0 {
		return nil
	}
	return t.q.HoldKeys(t.ctx, t.db, h)
}

// Bucket is the state of a token bucket.
type Bucket struct {
	Line      string
	Tokens    float64
	Unstarted int32
	Time      time.Time
	Full      time.Duration // time until it is full
	Next      time.Duration // time until it allows a start; 0 means now
}

// SetBuckets stores buckets.
func (t *ConstraintTx) SetBuckets(buckets []Bucket) error {
	if len(buckets) == 0 {
		return nil
	}
	a := dbsqlc.WriteBucketsParams{Namespace: t.Namespace}
	for _, b := range buckets {
		a.Append(dbsqlc.WriteBucketsItem{
			Line: b.Line, Tokens: b.Tokens, Unstarted: b.Unstarted, RefilledTime: b.Time,
			FullUs: b.Full.Microseconds(), NextUs: b.Next.Microseconds(),
		})
	}
	return t.q.WriteBuckets(t.ctx, t.db, a)
}

// KeysOf parses jobs.constraint_keys.
func KeysOf(text []byte) (map[string]string, error) {
	var keys map[string]string
	if len(text) > 0 {
		if err := json.Unmarshal(text, &keys); err != nil {
			return nil, fmt.Errorf("keys of a job: %w", err)
		}
	}
	return keys, nil
}
