package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

const (
	// queueBatch is the maximum number of waiting tasks or held messages that one statement moves.
	queueBatch = 2000
	// minQueueBatch is the minimum of queueLimit. A flush may change the status of many processes,
	// and each of them must make progress.
	minQueueBatch = 200
	// maxQueuedTasks is the number of waiting tasks at which a process gets no more messages. The
	// messages wait until fewer tasks wait in the process.
	maxQueuedTasks = 1000
	// backlogBatch is the number of processes that one call of SettleQueues handles.
	backlogBatch = 20
)

// queueLimit returns how many rows of each process a statement moves if it moves the queues of n
// processes.
func queueLimit(n int) int32 {
	return int32(max(queueBatch/max(n, 1), minQueueBatch))
}

// SettleQueues moves one batch of the waiting tasks and held messages that changes of status have
// left in large queues. It returns the number of rows that it moved. If the queue of one process
// cannot be moved now, the others are still moved, and the error names the process.
func (s *Store) SettleQueues(ctx context.Context) (moved int64, err error) {
	rows, err := s.q.ListBacklogs(ctx, s.general, backlogBatch)
	if err != nil {
		return 0, mapped("list queue backlogs", err)
	}
	var errs []error
	for _, k := range keysOf(rows) {
		n, err := s.settleQueue(ctx, k)
		if err != nil {
			errs = append(errs, mapped("settle the queue of process "+k.String(), err))
		}
		moved += n
	}
	return moved, errors.Join(errs...)
}

func (s *Store) settleQueue(ctx context.Context, key process.Key) (moved int64, err error) {
	err = s.locked(ctx, key, func(ctx context.Context, db DB) error {
		rows, err := s.q.SettleQueues(ctx, db, dbsqlc.SettleQueuesParams{
			Namespaces: []string{key.Namespace}, ProcessIds: []string{key.ProcessID}, Lim: queueBatch,
		})
		for _, r := range rows {
			moved += r.Tasks + r.Messages
		}
		return err
	})
	return moved, err
}

// locked locks a process and runs a statement in the same transaction, on a connection of s.slow.
func (s *Store) locked(ctx context.Context, key process.Key, statement stage) error {
	conn, err := s.slow.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return pipeline(ctx, conn.Conn(), []stage{s.lockStage([]process.Key{key}), statement})
}

// prepareResume changes what the tasks of a suspended process wait for, in batches. After it, the
// resume itself has few rows to change.
func (s *Store) prepareResume(key process.Key) error {
	for {
		var moved int64
		ctx, cancel := context.WithTimeout(s.stopped, flushTimeout)
		err := s.locked(ctx, key, func(ctx context.Context, db DB) (err error) {
			moved, err = s.q.ResumeTasks(ctx, db, dbsqlc.ResumeTasksParams{
				Namespace: key.Namespace, ProcessID: key.ProcessID, Lim: queueBatch,
			})
			return err
		})
		cancel()
		if err != nil {
			return mapped(fmt.Sprintf("resume process %s: move its waiting tasks", key), err)
		}
		if moved < queueBatch {
			return nil
		}
	}
}
