package crons

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/crons"
	"github.com/progressor-engine/progressor/storage/search"
)

// lastTime is after every fire time.
var lastTime = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// ListFires returns a page of the ledger of a cron, newest first.
func (c *Crons) ListFires(ctx context.Context, r *progressorv1.ListFiresRequest) ([]*progressorv1.Fire, string, error) {
	before := lastTime
	if token := r.GetPageToken(); token != "" {
		at, err := strconv.ParseInt(token, 36, 64)
		if err != nil {
			return nil, "", process.InvalidPageToken()
		}
		before = time.UnixMicro(at)
	}
	s, err := c.read(ctx, r.GetNamespace(), r.GetCronId())
	if err != nil {
		return nil, "", err
	}
	size := search.DefaultPageSize
	if r.GetPageSize() > 0 {
		size = min(int(r.GetPageSize()), search.MaxPageSize)
	}
	rows, err := crons.List(ctx, c.store, r.GetNamespace(), r.GetCronId(), before, s.Created, size+1)
	if err != nil {
		return nil, "", err
	}
	next := ""
	if len(rows) > size {
		rows = rows[:size]
		next = strconv.FormatInt(rows[size-1].FireTime.UnixMicro(), 36)
	}
	list := make([]*progressorv1.Fire, len(rows))
	for n := range rows {
		list[n] = fireOf(r.GetCronId(), &rows[n])
	}
	return list, next, nil
}

// fireOf converts a row of the ledger to its message.
func fireOf(cronID string, r *crons.Row) *progressorv1.Fire {
	f := &progressorv1.Fire{
		FireId:      cronID + "/" + r.FireTime.UTC().Format(time.RFC3339Nano),
		FireTime:    stamp(r.FireTime),
		DecidedTime: stamp(r.DecidedTime),
		Decision:    progressorv1.Decision(progressorv1.Decision_value["DECISION_"+strings.ToUpper(r.Decision)]),
		Reason:      r.Reason,
		Attempt:     r.Attempt,
		Status:      progressorv1.FireStatus(progressorv1.FireStatus_value["FIRE_STATUS_"+strings.ToUpper(r.Status)]),
		ProcessId:   r.ProcessID,
		Detail:      r.Detail,
		Manual:      r.Manual,
		Count:       r.Count,
	}
	if r.StartedTime != nil {
		f.StartedTime = stamp(*r.StartedTime)
	}
	if r.EndedTime != nil {
		f.EndedTime = stamp(*r.EndedTime)
	}
	return f
}
