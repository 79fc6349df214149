package changes

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// ExplainSink reads the data for the explanation of a sink, except for its dead letters and its
// target. A node without a heartbeat for zombieAfter is dead. The error is process.ErrSinkNotFound
// if the sink does not exist.
func ExplainSink(
	ctx context.Context, s *storage.Store, k SinkKey, zombieAfter time.Duration,
) (row *SinkRow, state explain.SinkState, err error) {
	if row, err = GetSink(ctx, s, k); err != nil {
		return nil, state, err
	}
	var facts dbsqlc.ExplainSinkRow
	err = s.ReadOne(ctx, "explain sink", func(ctx context.Context, db storage.DB) (err error) {
		facts, err = dbsqlc.New().ExplainSink(ctx, db, dbsqlc.ExplainSinkParams{
			Namespace: k.Namespace, SinkID: k.SinkID, ZombieAfterUs: zombieAfter.Microseconds(),
		})
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = process.ErrSinkNotFound
	}
	if err != nil {
		return nil, state, err
	}
	state = explain.SinkState{
		Now: facts.Now, Namespace: k.Namespace, SinkID: k.SinkID, State: row.State, Delivered: known(row.DeliveredTime),
		Records: facts.Records, Nodes: int(facts.Deliverers),
		Backlog: explain.Backlog{
			Changes: row.LagChanges, Oldest: knownTime(facts.OldestTime), Breaks: knownTime(facts.BreakTime),
			Lost: facts.Lost,
		},
		Failure: explain.SinkFailure{
			Count: row.Failures, Error: row.LastError, Time: known(row.LastErrorTime), Next: known(row.NextAttemptTime),
		},
		Holder: explain.SinkHolder{
			NodeID: facts.NodeID, Address: facts.Address, Alive: facts.Alive, Beat: knownTime(facts.BeatTime),
			Expires: knownTime(facts.LeaseTime),
		},
	}
	return row, state, nil
}

// known returns a time, or the zero time if it is unknown.
func known(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// knownTime returns a time, or the zero time if it is the epoch, which means NULL.
func knownTime(t time.Time) time.Time {
	if t.Unix() == 0 {
		return time.Time{}
	}
	return t
}
