package storage

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// deferred is the outcome that ReadApplied expects for a result that defers its response, so that
// the task stays open.
const deferred = "defer"

// storedOutcome returns the outcome that tells ReadApplied in which table to look for a completion
// that was stored.
func (c *Completion) storedOutcome() string {
	if c.DeferResponse {
		return deferred
	}
	return string(c.Outcome)
}

// addReplies adds the replies of a completion to open tasks of its process. The flush stores them
// before the result of the completion, which may end the process and with it all open tasks.
func (b *saveBatch) addReplies(c *Completion) {
	if !c.applies() {
		return
	}
	for _, r := range c.Replies {
		b.reply.Append(dbsqlc.ReplyTasksItem{
			Key: c.Key, FencingToken: c.FencingToken, TaskID: r.TaskID, Response: r.Response,
			Rejection: string(r.Rejection),
		})
	}
}

// deferStages returns the statement that keeps tasks open if their results defer the response.
func deferStages(s *Store, items []*saveItem) []stage {
	arg := dbsqlc.DeferTasksParams{MaxOpen: process.MaxOpenTasks}
	for _, it := range items {
		if c := it.completion; c.DeferResponse && c.applies() {
			arg.Append(dbsqlc.DeferTasksItem{Key: c.Key, TaskID: c.TaskID, FencingToken: c.FencingToken})
		}
	}
	if len(arg.Namespaces) == 0 {
		return nil
	}
	return []stage{func(ctx context.Context, db DB) error { return s.q.DeferTasks(ctx, db, arg) }}
}
