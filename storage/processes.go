package storage

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// GetProcess returns a process, or process.ErrProcessNotFound.
func (s *Store) GetProcess(ctx context.Context, key process.Key) (Process, error) {
	row, err := s.q.GetProcess(ctx, s.general, dbsqlc.GetProcessParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID,
	})
	return row, noRow(mapped("get process "+key.String(), err), process.ErrProcessNotFound)
}

// View is a process with a part of its history and its pending timers, read in one snapshot.
type View struct {
	Process Process
	Events  []Event
	Timers  []Timer
}

// ViewProcess returns a process, or process.ErrProcessNotFound. rng selects its events, with the
// limits of ReadHistory. ViewProcess reads the history separately from the reads for attempts, so
// that it does not delay attempts.
func (s *Store) ViewProcess(ctx context.Context, key process.Key, rng HistoryRange) (View, error) {
	var v View
	err := s.Read(ctx, "view process "+key.String(), func(ctx context.Context, tx pgx.Tx) (err error) {
		v = View{}
		v.Process, err = s.q.GetProcess(ctx, tx, dbsqlc.GetProcessParams{
			Namespace: key.Namespace, ProcessID: key.ProcessID,
		})
		if err != nil {
			return err
		}
		if v.Events, err = ReadRange(ctx, tx, &v.Process, rng, process.MaxHistoryBytes); err != nil {
			return err
		}
		v.Timers, err = s.q.GetTimers(ctx, tx, dbsqlc.GetTimersParams{
			Namespace: key.Namespace, ProcessID: key.ProcessID,
		})
		return err
	})
	return v, noRow(err, process.ErrProcessNotFound)
}

// GetTimers returns the pending timers of a process, soonest first.
func (s *Store) GetTimers(ctx context.Context, key process.Key) ([]Timer, error) {
	rows, err := s.q.GetTimers(ctx, s.general, dbsqlc.GetTimersParams{
		Namespace: key.Namespace, ProcessID: key.ProcessID,
	})
	return rows, mapped("get timers "+key.String(), err)
}

// ListBytes limits the bytes that a list or a trace reads at a time. The result ends with the row
// that exceeds this limit, even if more rows were requested.
const ListBytes = process.MaxHistoryBytes

// Import is a process with its history, to be stored unchanged.
type Import struct {
	Key               process.Key
	Status            process.Status // RUNNING or ERROR
	Detail            string
	AuxState, Context []byte
	Metadata          []byte
	Events            []NewEvent
	Timers            []SetTimer // only timers with At
}

// PutProcess imports a process. It returns process.ErrProcessExists if it exists.
func (s *Store) PutProcess(ctx context.Context, in Import, by ...process.Actor) (Process, error) {
	arg := dbsqlc.PutProcessParams{
		Namespace: in.Key.Namespace, ProcessID: in.Key.ProcessID, Status: in.Status, Detail: in.Detail,
		AuxState: in.AuxState,
		Metadata: string(in.Metadata), Context: in.Context, EventPayloads: [][]byte{}, EventTimestamps: []time.Time{},
		EventMetadatas: []string{},
		TimerNames:     []string{}, TimerTypes: []string{}, TimerAts: []time.Time{},
	}
	for _, e := range in.Events {
		payload := e.Payload
		if payload == nil {
			payload = []byte{}
		}
		arg.AppendEvent(dbsqlc.PutProcessEvent{
			Payload: payload, Ts: e.Timestamp, Metadata: string(e.Metadata),
		})
	}
	for _, t := range lastOfEachName(in.Timers) {
		arg.AppendTimer(dbsqlc.PutProcessTimer{Name: t.Name, TimerType: t.taskType(), At: t.At})
	}
	var row dbsqlc.PutProcessRow
	err := s.audited(ctx, note{"PutProcess", in.Key.Namespace, in.Key.ProcessID, nil}, by, func(db DB) (err error) {
		row, err = s.q.PutProcess(ctx, db, arg)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Process{}, process.ErrProcessExists
	}
	return Process(row), mapped("put process "+in.Key.String(), err)
}
