package changes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// aheadDays is the number of days in advance for which partitions are added.
const aheadDays = 2

// tables are the tables with triggers that record changes.
var tables = []string{"processes", "job_events", "cron_fires"}

const (
	stateNotStarted = "55000" // function require_change_triggers raises it
	stateLocked     = "55P03"
	// startTries is how many times Start tries to lock a table, for at most 500 ms each.
	startTries = 10
	startWait  = 200 * time.Millisecond
)

// Start creates the triggers that record changes, and partitions for the next days. It waits for
// running transactions. If a long transaction has locked a table, the error is
// process.ErrUnavailable.
func Start(ctx context.Context, s *storage.Store) error {
	if err := addPartitions(ctx, s); err != nil {
		return err
	}
	for _, table := range tables {
		err := retryLocked(ctx, func() error {
			return s.Write(ctx, "start recording changes", func(ctx context.Context, db storage.DB) error {
				return dbsqlc.New().StartRecording(ctx, db, table)
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// retryLocked repeats an operation while a table is locked.
func retryLocked(ctx context.Context, run func() error) error {
	for try := 1; ; try++ {
		err := run()
		if storage.SQLState(err) != stateLocked {
			return err
		}
		if try == startTries {
			return fmt.Errorf("%w: a transaction has locked a table for too long (%w)", process.ErrUnavailable, err)
		}
		timer := time.NewTimer(startWait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// PutNamespace is Store.ReplaceNamespace for a namespace that records changes. It calls Start
// first, and again if another node has dropped the triggers in the meantime.
func PutNamespace(
	ctx context.Context, s *storage.Store, namespace string,
	config func(before json.RawMessage) (json.RawMessage, error), by ...process.Actor,
) (storage.Namespace, error) {
	for try := 1; ; try++ {
		if err := Start(ctx, s); err != nil {
			return storage.Namespace{}, err
		}
		row, err := s.ReplaceNamespace(ctx, namespace, config, by...)
		if storage.SQLState(err) != stateNotStarted || try == startTries {
			return row, err
		}
	}
}

// Maintain adds partitions for the next days, sets sinks that lag too far to BROKEN, and drops
// partitions whose retention is over. It drops the triggers if no namespace records changes. It
// skips tables that are locked; the next pass handles them.
func Maintain(ctx context.Context, s *storage.Store) error {
	var records bool
	err := s.RunReserved(ctx, "read change settings", func(ctx context.Context, db storage.DB) (err error) {
		records, err = dbsqlc.New().RecordsChanges(ctx, db)
		return err
	})
	if err != nil {
		return err
	}
	var errs []error
	if records {
		errs = append(errs, ignoreLocked(addPartitions(ctx, s)))
	} else {
		errs = append(errs, ignoreLocked(stop(ctx, s)))
	}
	// The changes of a sink must not be deleted before it is BROKEN.
	if err := breakLagging(ctx, s); err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, ignoreLocked(dropPartitions(ctx, s)))...)
}

// stop drops the triggers if no namespace records changes.
func stop(ctx context.Context, s *storage.Store) error {
	for _, table := range tables {
		err := s.Write(ctx, "stop recording changes", func(ctx context.Context, db storage.DB) error {
			return dbsqlc.New().StopRecording(ctx, db, table)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addPartitions adds the missing partitions of today and the next days.
func addPartitions(ctx context.Context, s *storage.Store) error {
	for days := range int32(aheadDays + 1) {
		err := s.Write(ctx, "add a partition of changes", func(ctx context.Context, db storage.DB) error {
			return dbsqlc.New().AddChangePartition(ctx, db, days)
		})
		if err := ignoreLocked(err); err != nil { // until the partition exists, rows are stored in changes_default
			return err
		}
	}
	return nil
}

// dropPartitions drops all partitions whose retention is over.
func dropPartitions(ctx context.Context, s *storage.Store) error {
	for {
		var dropped string
		err := s.Write(ctx, "drop a partition of changes", func(ctx context.Context, db storage.DB) (err error) {
			dropped, err = dbsqlc.New().DropChangePartition(ctx, db)
			return err
		})
		if err != nil || dropped == "" {
			return err
		}
	}
}

func ignoreLocked(err error) error {
	if storage.SQLState(err) == stateLocked {
		return nil
	}
	return err
}
