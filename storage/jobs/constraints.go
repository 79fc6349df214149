package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Constraint is a limit of jobs as it is stored.
type Constraint struct {
	Name, Match, Key string
	MaxRunning       int32 // 0: any number
	RateCount        int32 // 0: no rate
	RatePer          time.Duration
	RateBurst        int32
}

// Subject is a job as constraints see it.
type Subject struct {
	Name     string
	Args     []byte // JSON; nil: null
	Metadata []byte // JSON object; nil: empty
	Tags     []byte // JSON array of strings; nil: empty
	Priority int32
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

// Standing is a constraint with how much of it is in use.
type Standing struct {
	Constraint
	Running, Held, Waiting int64     // jobs: those that hold a key and run, those that hold one and nobody has claimed yet, those that wait for one
	NextFreeTime           time.Time // zero: no rate has to be waited for
}

// ListConstraints gives the constraints of a namespace, by name.
func ListConstraints(ctx context.Context, s *storage.Store, namespace string) (all []Standing, err error) {
	err = s.Read(ctx, "list constraints", func(ctx context.Context, tx pgx.Tx) error {
		constraints, err := readConstraints(ctx, tx, namespace)
		if err != nil {
			return err
		}
		counts, err := dbsqlc.New().CountConstraints(ctx, tx, namespace)
		for n, c := range counts { // of one moment, in the same order
			all = append(all, Standing{Constraint: constraints[n], Running: c.Running, Held: c.Held, Waiting: c.Waiting})
			if c.NextFreeTime.Unix() > 0 {
				all[n].NextFreeTime = c.NextFreeTime
			}
		}
		return err
	})
	return all, err
}

// QueuePosition is where a job stands in the line of a key.
type QueuePosition struct {
	Before    int // at most the limit that was asked for
	Held      int
	Holders   []string  // the first three of them
	Unstarted int       // of those that hold it, nobody has claimed these
	NextTime  time.Time // of the bucket; zero: it has a start to give
}

// ReadQueuePosition tells where a job that waits for a key stands; before it at most limit are counted.
func ReadQueuePosition(ctx context.Context, s *storage.Store, r *Row, limit int) (at QueuePosition, constraints []Constraint, err error) {
	err = s.Read(ctx, "read place in line", func(ctx context.Context, tx pgx.Tx) (err error) {
		if constraints, err = readConstraints(ctx, tx, r.Namespace); err != nil {
			return err
		}
		row, err := dbsqlc.New().PlaceInLine(ctx, tx, dbsqlc.PlaceInLineParams{
			Namespace: r.Namespace, Line: r.Line, Priority: r.Priority, TaskID: r.TaskID, Lim: int32(limit),
		})
		at = QueuePosition{Before: int(row.Before), Held: int(row.Held), Holders: row.Holders, Unstarted: int(row.Unstarted)}
		if row.NextTime.Unix() > 0 {
			at.NextTime = row.NextTime
		}
		return err
	})
	return at, constraints, err
}

// Back goes with the end of an attempt whose job holds keys, or has to be evaluated anew, and runs again: its keys are free, and it waits in line.
// A rider.
type Back struct{}

// Bytes implements storage.Rider.
func (Back) Bytes() int { return 100 }

// Write implements storage.Rider.
func (Back) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.BackInLineParams
	a.Namespaces, a.ProcessIds, a.TaskIds, a.FencingTokens = storage.Attempts(all)
	return dbsqlc.New().BackInLine(ctx, db, a)
}

// Turn is a transaction that has a namespace's constraints to itself, on all nodes: nobody else gives keys to jobs or changes constraints.
type Turn struct {
	Namespace   string
	Version     int64
	Constraints []Constraint // once they are loaded
	Now         time.Time
	Changed     time.Time     // when Version grew
	Swept       time.Time     // when the last look through all that waits had begun which came to its end; zero: there was none
	Cursor      *string       // how far the look under way has come; nil: there is none
	Next        time.Duration // until Due or DueBuckets have something, when the turn began; negative: not by themselves

	ctx context.Context
	db  storage.DB
	q   *dbsqlc.Queries

	mode int32 // which events the namespace keeps
}

// TakeTurn runs a turn. found false: the namespace has never had constraints.
func TakeTurn(ctx context.Context, s *storage.Store, namespace string, turn func(*Turn) error) (found bool, err error) {
	err = s.Taking(ctx, "constraints of "+namespace, func(ctx context.Context, db storage.DB) error {
		t := &Turn{Namespace: namespace, ctx: ctx, db: db, q: dbsqlc.New(), mode: s.EventModeOf(namespace)}
		err := t.begin()
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		found = true
		return turn(t)
	})
	return found, err
}

func (t *Turn) begin() error {
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
func (t *Turn) Load() (err error) {
	t.Constraints, err = readConstraints(t.ctx, t.db, t.Namespace)
	return err
}

// PutConstraint stores a constraint and makes a new version. after runs in the same transaction.
func PutConstraint(ctx context.Context, s *storage.Store, namespace string, c Constraint, by []process.Actor, after func(*Turn) error) error {
	return change(ctx, s, namespace, after, func(ctx context.Context, db storage.DB, q *dbsqlc.Queries) error {
		err := q.PutConstraint(ctx, db, dbsqlc.PutConstraintParams{
			Namespace: namespace, Name: c.Name, Match: c.Match, Key: c.Key, MaxRunning: c.MaxRunning,
			RateCount: c.RateCount, RatePerUs: c.RatePer.Microseconds(), RateBurst: c.RateBurst,
		})
		if err != nil {
			return err
		}
		return storage.AuditCommand(ctx, db, "PutConstraint", namespace, c.Name, by)
	})
}

// DeleteConstraint drops a constraint and makes a new version. process.ErrConstraintNotFound: there is none of that name.
func DeleteConstraint(ctx context.Context, s *storage.Store, namespace, name string, by []process.Actor, after func(*Turn) error) error {
	return change(ctx, s, namespace, after, func(ctx context.Context, db storage.DB, q *dbsqlc.Queries) error {
		n, err := q.DeleteConstraint(ctx, db, dbsqlc.DeleteConstraintParams{Namespace: namespace, Name: name})
		if err == nil && n == 0 {
			err = fmt.Errorf("constraint %q of namespace %q: %w", name, namespace, process.ErrConstraintNotFound)
		}
		if err != nil {
			return err
		}
		return storage.AuditCommand(ctx, db, "DeleteConstraint", namespace, name, by)
	})
}

func change(ctx context.Context, s *storage.Store, namespace string, after func(*Turn) error, write func(context.Context, storage.DB, *dbsqlc.Queries) error) error {
	return s.Taking(ctx, "change constraints of "+namespace, func(ctx context.Context, db storage.DB) error {
		t := &Turn{Namespace: namespace, ctx: ctx, db: db, q: dbsqlc.New(), mode: s.EventModeOf(namespace)}
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

// Due lets jobs whose time has come wait in their lines, at most limit. It tells which lines these are.
func (t *Turn) Due(limit int32) ([]string, error) {
	return t.q.DueInLine(t.ctx, t.db, dbsqlc.DueInLineParams{Namespace: t.Namespace, Mode: t.mode, Lim: limit})
}

// DueBuckets gives lines whose bucket has a start to give again.
func (t *Turn) DueBuckets(limit int32) ([]string, error) {
	return t.q.DueBuckets(t.ctx, t.db, dbsqlc.DueBucketsParams{Namespace: t.Namespace, Lim: limit})
}

// Rest tells how long it is now until Due or DueBuckets have something; negative: not by themselves.
func (t *Turn) Rest() (time.Duration, error) {
	us, err := t.q.NextInLine(t.ctx, t.db, t.Namespace)
	return time.Duration(us) * time.Microsecond, err
}

// KeyState is what is held of a key, and where its bucket stands.
type KeyState = dbsqlc.ReadLinesRow

// Read tells where lines stand. rated: their constraint has a rate.
func (t *Turn) Read(lines []string, rated []bool) ([]KeyState, error) {
	if len(lines) == 0 {
		return nil, nil
	}
	return t.q.ReadLines(t.ctx, t.db, dbsqlc.ReadLinesParams{Namespace: t.Namespace, Lines: lines, Rateds: rated})
}

// InFront is a job at the front of a line, taken by this transaction.
type InFront struct {
	ProcessID string
	TaskID    int64
	Line      string
	Subject          // where Stale, all of it; else the name and priority
	Keys      []byte // JSON of its keys; nil: none
	Stale     bool   // Keys are of an older version
	Given     bool   // of Front: it has its key and a place, as all of them have
	WaitsFor  process.WaitsFor
	Since     time.Time // of Front: since when it could run
}

// Front takes the first jobs of lines, rooms[n] of the n-th, limit in all. If each of them needs the key of its line and no other, all are Given
// it: there is nothing to be weighed up, and one statement does for three.
func (t *Turn) Front(lines []string, rooms []int32, limit int32) ([]InFront, error) {
	keys := make([]string, len(lines))
	for n, line := range lines {
		if name, key, ok := strings.Cut(line, "="); ok {
			keys[n] = storage.Constrained{Keys: map[string]string{name: key}}.JSON()
		}
	}
	rows, err := t.q.TakeLines(t.ctx, t.db, dbsqlc.TakeLinesParams{Namespace: t.Namespace, Version: t.Version, Lines: lines, Rooms: rooms, Keys: keys, Lim: limit})
	all := make([]InFront, len(rows))
	for n := range rows {
		r := &rows[n]
		all[n] = InFront{
			ProcessID: r.ProcessID, TaskID: r.TaskID, Line: r.Line, Keys: r.ConstraintKeys, Stale: r.Stale, Given: r.Given, WaitsFor: process.WaitsForConstraint, Since: r.ScheduledTime,
			Subject: Subject{Name: r.Name, Args: r.Args, Metadata: r.Metadata, Tags: r.Tags, Priority: r.Priority},
		}
	}
	return all, err
}

// Move is where a job waits from now on.
type Move struct {
	ProcessID string
	TaskID    int64
	WaitsFor  process.WaitsFor
	Line      string // "": it needs no key
	Evaluated bool   // Keys are its from now on
	Keys      map[string]string
	Holds     []string // lines whose key it is given
}

// Place moves jobs that this transaction has taken.
func (t *Turn) Place(moves []Move) error {
	if len(moves) == 0 {
		return nil
	}
	a := dbsqlc.PlaceJobsParams{Version: t.Version}
	for _, m := range moves {
		a.Namespaces = append(a.Namespaces, t.Namespace)
		a.ProcessIds = append(a.ProcessIds, m.ProcessID)
		a.TaskIds = append(a.TaskIds, m.TaskID)
		a.WaitsFors = append(a.WaitsFors, string(m.WaitsFor))
		a.Lines = append(a.Lines, m.Line)
		a.Evaluateds = append(a.Evaluateds, m.Evaluated)
		a.Keys = append(a.Keys, storage.Constrained{Keys: m.Keys}.JSON())
	}
	if err := t.q.PlaceJobs(t.ctx, t.db, a); err != nil {
		return err
	}
	return t.Hold(moves)
}

// Hold notes the keys that jobs are given.
func (t *Turn) Hold(moves []Move) error {
	h := dbsqlc.HoldKeysParams{Namespace: t.Namespace}
	for _, m := range moves {
		for _, line := range m.Holds {
			h.ProcessIds = append(h.ProcessIds, m.ProcessID)
			h.Lines = append(h.Lines, line)
		}
	}
	if len(h.Lines) == 0 {
		return nil
	}
	return t.q.HoldKeys(t.ctx, t.db, h)
}

// Bucket is where a token bucket stands.
type Bucket struct {
	Line      string
	Tokens    float64
	Unstarted int32
	Time      time.Time
	Full      time.Duration // until it is full
	Next      time.Duration // until it has a start to give; 0: it has
}

// SetBuckets stores buckets.
func (t *Turn) SetBuckets(buckets []Bucket) error {
	if len(buckets) == 0 {
		return nil
	}
	a := dbsqlc.WriteBucketsParams{Namespace: t.Namespace}
	for _, b := range buckets {
		a.Lines = append(a.Lines, b.Line)
		a.Tokens = append(a.Tokens, b.Tokens)
		a.Unstarteds = append(a.Unstarteds, b.Unstarted)
		a.RefilledTimes = append(a.RefilledTimes, b.Time)
		a.FullsUs = append(a.FullsUs, b.Full.Microseconds())
		a.NextsUs = append(a.NextsUs, b.Next.Microseconds())
	}
	return t.q.WriteBuckets(t.ctx, t.db, a)
}

// sweptKeys is how many keys one Tidy looks at. A turn has the constraints of its namespace to itself, and 2,858 keys took 65 ms by the clock of EXPLAIN
// ANALYZE: a job that is enqueued meanwhile waits for so long.
const sweptKeys = 1000

// HeldKeys is a key that a job holds; Tidy goes on after it.
type HeldKeys struct{ processID, line string }

// Tidy frees keys that no job has any more, among those after one, tells which, and where to go on. It drops full buckets.
func (t *Turn) Tidy(after HeldKeys) (freed []string, next HeldKeys, err error) {
	if err := t.q.ForgetBuckets(t.ctx, t.db, t.Namespace); err != nil {
		return nil, after, err
	}
	row, err := t.q.SweepHolds(t.ctx, t.db, dbsqlc.SweepHoldsParams{Namespace: t.Namespace, AfterProcess: after.processID, AfterLine: after.line, Lim: sweptKeys})
	if row.Looked == sweptKeys {
		next = HeldKeys{row.LastProcess, row.LastLine}
	}
	return row.Freed, next, err
}

// Keys gives lines in which somebody waits, from one on, at most limit.
func (t *Turn) Keys(from string, limit int32) ([]string, error) {
	return t.q.ListLines(t.ctx, t.db, dbsqlc.ListLinesParams{Namespace: t.Namespace, FromLine: from, Lim: limit})
}

// Unheld gives the jobs that run and were claimed under an older version.
func (t *Turn) Unheld() (map[string]Subject, error) {
	rows, err := t.q.RunningUnheld(t.ctx, t.db, dbsqlc.RunningUnheldParams{Namespace: t.Namespace, Version: t.Version})
	all := make(map[string]Subject, len(rows))
	for _, r := range rows {
		all[r.ProcessID] = Subject{Name: r.Name, Args: r.Args, Metadata: r.Metadata, Tags: r.Tags, Priority: r.Priority}
	}
	return all, err
}

// sweepSpan is how many tasks that wait a part of a look reads.
const sweepSpan = 500

// Sweep goes on with the look through all that waits, by one span of it: the jobs in it that were evaluated under an older version are locked
// and given. over: it has come to its end.
func (t *Turn) Sweep() (stale []InFront, over bool, err error) {
	span, err := t.q.SpanOfJobs(t.ctx, t.db, dbsqlc.SpanOfJobsParams{Namespace: t.Namespace, Version: t.Version, After: *t.Cursor, Lim: sweepSpan})
	if err != nil {
		return nil, false, err
	}
	lock := dbsqlc.LockProcessesParams{}
	for _, r := range span {
		if r.Stale {
			lock.Namespaces = append(lock.Namespaces, t.Namespace)
			lock.ProcessIds = append(lock.ProcessIds, r.ProcessID)
		}
	}
	cursor := ""
	if over = len(span) < sweepSpan; !over {
		cursor = span[len(span)-1].ProcessID
	}
	if len(lock.ProcessIds) > 0 {
		if err := t.q.LockProcesses(t.ctx, t.db, lock); err != nil {
			return nil, false, err
		}
		rows, err := t.q.StaleJobs(t.ctx, t.db, dbsqlc.StaleJobsParams{Namespaces: lock.Namespaces, Version: t.Version, ProcessIds: lock.ProcessIds})
		if err != nil {
			return nil, false, err
		}
		for _, r := range rows {
			stale = append(stale, InFront{
				ProcessID: r.ProcessID, TaskID: r.TaskID, Stale: true, WaitsFor: r.WaitsFor,
				Subject: Subject{Name: r.Name, Args: r.Args, Metadata: r.Metadata, Tags: r.Tags, Priority: r.Priority},
			})
		}
		drop := dbsqlc.DropHoldsParams{}
		for n := range stale { // its row waits: none of its keys is in use
			drop.Namespaces = append(drop.Namespaces, t.Namespace)
			drop.ProcessIds = append(drop.ProcessIds, stale[n].ProcessID)
		}
		if err := t.q.DropHolds(t.ctx, t.db, drop); err != nil {
			return nil, false, err
		}
	}
	return stale, over, t.q.MoveSweep(t.ctx, t.db, dbsqlc.MoveSweepParams{Namespace: t.Namespace, Cursor: cursor})
}

// SweepAgain begins another look.
func (t *Turn) SweepAgain() error {
	cursor := ""
	t.Cursor = &cursor
	return t.q.BeginSweep(t.ctx, t.db, t.Namespace)
}

// KeysOf reads keys as jobs.constraint_keys has them.
func KeysOf(text []byte) (map[string]string, error) {
	var keys map[string]string
	if len(text) > 0 {
		if err := json.Unmarshal(text, &keys); err != nil {
			return nil, fmt.Errorf("keys of a job: %w", err)
		}
	}
	return keys, nil
}
