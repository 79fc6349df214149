package storage

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// GetProcess reads a process, or answers process.ErrProcessNotFound.
func (s *Store) GetProcess(ctx context.Context, key process.Key) (Process, error) {
	row, err := s.q.GetProcess(ctx, s.general, dbsqlc.GetProcessParams{Namespace: key.Namespace, ProcessID: key.ProcessID})
	return row, noRow(mapped("get process "+key.String(), err), process.ErrProcessNotFound)
}

// View is a process with a part of its history and its pending timers, as they were at one moment.
type View struct {
	Process Process
	Events  []Event
	Timers  []Timer
}

// ViewProcess reads a process, or answers process.ErrProcessNotFound. Its events are bounded as ReadHistory bounds them. It does not
// read with the attempts: whoever looks at a process does not hold up those who run it.
func (s *Store) ViewProcess(ctx context.Context, key process.Key, rng HistoryRange) (View, error) {
	var v View
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, s.general, options, func(tx pgx.Tx) (err error) {
		v = View{}
		v.Process, err = s.q.GetProcess(ctx, tx, dbsqlc.GetProcessParams{Namespace: key.Namespace, ProcessID: key.ProcessID})
		if err != nil {
			return err
		}
		if rng.Limit != 0 && v.Process.LastEventID > 0 {
			arg := dbsqlc.ReadHistoriesParams{MaxBytes: process.MaxHistoryBytes}
			addRange(&arg, 0, key, rng)
			rows, err := s.q.ReadHistories(ctx, tx, arg)
			if err != nil {
				return err
			}
			for i := range rows {
				v.Events = append(v.Events, eventOf(&rows[i]))
			}
		}
		v.Timers, err = s.q.GetTimers(ctx, tx, dbsqlc.GetTimersParams{Namespace: key.Namespace, ProcessID: key.ProcessID})
		return err
	})
	return v, noRow(mapped("view process "+key.String(), err), process.ErrProcessNotFound)
}

// GetTimers reads the pending timers of a process, soonest first.
func (s *Store) GetTimers(ctx context.Context, key process.Key) ([]Timer, error) {
	rows, err := s.q.GetTimers(ctx, s.general, dbsqlc.GetTimersParams{Namespace: key.Namespace, ProcessID: key.ProcessID})
	return rows, mapped("get timers "+key.String(), err)
}

// The far end of every key: a list begins there.
var (
	endOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	endOfIDs  = "\U0010FFFF"
)

// Page is where a list goes on: behind this key. The zero value is its beginning.
type Page struct {
	Time time.Time
	ID   string
}

func (p Page) before() (time.Time, string) {
	if p.Time.IsZero() {
		return endOfTime, endOfIDs
	}
	return p.Time, p.ID
}

// ListBytes is how much a list or a trace reads at a time: it ends with the row that passes it, even if more were asked for.
const ListBytes = process.MaxHistoryBytes

// ListByCreated lists processes, the newest first. Fewer than limit: these were all, or they passed ListBytes.
func (s *Store) ListByCreated(ctx context.Context, namespace string, page Page, limit int) ([]Process, error) {
	t, id := page.before()
	rows, err := s.q.ListByCreated(ctx, s.general, dbsqlc.ListByCreatedParams{
		Namespace: namespace, BeforeTime: t, BeforeID: id, MaxBytes: ListBytes, Lim: int32(limit), //nolint:gosec // a page
	})
	return processesOf(rows), mapped("list processes", err)
}

// processesOf gives the rows of the lists, which are alike, one name.
func processesOf[R dbsqlc.ListByCreatedRow | dbsqlc.ListByIDRow | dbsqlc.ListAttentionRow](rows []R) []Process {
	list := make([]Process, len(rows))
	for n := range rows {
		list[n] = Process(rows[n])
	}
	return list
}

// ListByID lists processes in the order of their ids.
func (s *Store) ListByID(ctx context.Context, namespace string, page Page, limit int) ([]Process, error) {
	rows, err := s.q.ListByID(ctx, s.general, dbsqlc.ListByIDParams{
		Namespace: namespace, AfterID: page.ID, MaxBytes: ListBytes, Lim: int32(limit), //nolint:gosec // a page
	})
	return processesOf(rows), mapped("list processes", err)
}

// ListAttention lists processes of a status that is neither INIT nor RUNNING, the last to come into it first.
func (s *Store) ListAttention(ctx context.Context, namespace string, status process.Status, page Page, limit int) ([]Process, error) {
	t, id := page.before()
	rows, err := s.q.ListAttention(ctx, s.general, dbsqlc.ListAttentionParams{
		Namespace: namespace, Status: status, BeforeTime: t, BeforeID: id, MaxBytes: ListBytes, Lim: int32(limit), //nolint:gosec // a page
	})
	return processesOf(rows), mapped("list processes", err)
}

// Import is a process with its history, to be stored as it is.
type Import struct {
	Key               process.Key
	Status            process.Status // RUNNING or ERROR
	Detail            string
	AuxState, Context []byte
	Metadata          []byte
	Events            []NewEvent
	Timers            []SetTimer // each with At
}

// PutProcess imports a process, or answers process.ErrProcessExists.
func (s *Store) PutProcess(ctx context.Context, in Import) (Process, error) {
	arg := dbsqlc.PutProcessParams{
		Namespace: in.Key.Namespace, ProcessID: in.Key.ProcessID, Status: in.Status, Detail: in.Detail, AuxState: in.AuxState,
		Metadata: string(in.Metadata), Context: in.Context, EventPayloads: [][]byte{}, EventTimestamps: []time.Time{}, EventMetadatas: []string{},
		TimerNames: []string{}, TimerTypes: []string{}, TimerAts: []time.Time{},
	}
	for _, e := range in.Events {
		payload := e.Payload
		if payload == nil {
			payload = []byte{}
		}
		arg.EventPayloads = append(arg.EventPayloads, payload)
		arg.EventTimestamps = append(arg.EventTimestamps, orEpoch(e.Timestamp))
		arg.EventMetadatas = append(arg.EventMetadatas, string(e.Metadata))
	}
	for _, t := range lastOfEachName(in.Timers) {
		arg.TimerNames = append(arg.TimerNames, t.Name)
		arg.TimerTypes = append(arg.TimerTypes, t.taskType())
		arg.TimerAts = append(arg.TimerAts, t.At)
	}
	row, err := s.q.PutProcess(ctx, s.general, arg)
	if errors.Is(err, pgx.ErrNoRows) {
		return Process{}, process.ErrProcessExists
	}
	return Process(row), mapped("put process "+in.Key.String(), err)
}
