package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/wire"
)

// lateJobs ends jobs whose start deadline has passed before their first attempt began. It runs on
// every node. Each pass of the collector wakes it if there are such jobs. No claim takes such a
// job, even before lateJobs has ended it.
type lateJobs struct {
	jobs  *Jobs
	woken chan struct{}
}

// lateBatch is the number of jobs that one transaction ends.
const lateBatch = 200

func newLateJobs(q *Jobs) *lateJobs { return &lateJobs{jobs: q, woken: make(chan struct{}, 1)} }

// wakeIfLate wakes Run if a job is late. It never blocks.
func (l *lateJobs) wakeIfLate(all []storage.NamespaceState) {
	if len(all) == 0 || !all[0].Late { // Late is equal in all rows
		return
	}
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// Run ends late jobs when it is woken, until ctx ends.
func (l *lateJobs) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.woken:
		}
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = l.end(ctx); err != nil {
				l.jobs.engine.ReportScanError(ctx, "start deadlines", err)
			}
		}
	}
}

// end ends one batch. It reports whether there may be more.
func (l *lateJobs) end(ctx context.Context) (more bool, err error) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), txTimeout)
	defer cancel()
	late, err := jobs.EndLateJobs(limit, l.jobs.store, lateBatch, lateEnd)
	if err != nil {
		return false, err
	}
	keys := make([]process.Key, len(late.Ended))
	var namespaces []string
	for n, j := range late.Ended {
		keys[n] = process.Key{Namespace: j.Namespace, ProcessID: j.ProcessID}
		namespaces = append(namespaces, j.Namespace)
		l.jobs.metrics.late.WithLabelValues(l.jobs.metrics.labels(j.Namespace, j.Name)...).Inc()
	}
	l.jobs.engine.AnnounceEnds(keys, late.Notified)
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		l.jobs.admission.checkAll(namespace) // a job may have had a key, or been first in a key queue
	}
	return len(late.Ended) == lateBatch, nil
}

// lateEnd returns the failure of a late job.
func lateEnd(j *jobs.LateJob) jobs.LateEnd {
	message := "no attempt began by " + j.StartDeadline.UTC().Format(time.RFC3339Nano)
	failure := &progressorv1.Failure{Reason: process.ReasonStartDeadline, Message: message, NonRetryable: true}
	text, _ := wire.FailureJSON(failure) // plain strings: this cannot fail
	return jobs.LateEnd{Failure: text, Message: message}
}
