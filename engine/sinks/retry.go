package sinks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/changes"
	"github.com/progressor-engine/progressor/wire"
)

// Retry marks the selected dead letters to be delivered again. With dry_run, it only returns them.
func (s *Sinks) Retry(
	ctx context.Context, r *progressorv1.RetrySinkDeadLettersRequest, by ...process.Actor,
) (*progressorv1.RetrySinkDeadLettersResponse, error) {
	selected, err := selectionOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.engine.CheckNamespace(ctx, r.GetNamespace()); err != nil {
		return nil, err
	}
	k := changes.SinkKey{Namespace: r.GetNamespace(), SinkID: r.GetSinkId()}
	var letters []changes.DeadLetter
	if r.GetDryRun() {
		letters, err = changes.SelectDeadLetters(ctx, s.store, k, selected)
	} else {
		letters, err = changes.RetryDeadLetters(ctx, s.store, k, selected, by...)
	}
	if err != nil {
		return nil, fmt.Errorf("sink %s/%s: %w", k.Namespace, k.SinkID, err)
	}
	if !r.GetDryRun() {
		s.wake()
	}
	m, err := s.read(ctx, k)
	if err != nil {
		return nil, err
	}
	response := &progressorv1.RetrySinkDeadLettersResponse{Sink: m}
	for n := range letters {
		response.DeadLetters = append(response.DeadLetters, letterOf(&letters[n]))
	}
	return response, nil
}

// selectionOf returns the selection of a request.
func selectionOf(r *progressorv1.RetrySinkDeadLettersRequest) (changes.Selection, error) {
	const fields = "change_ids, of_process_id, error, since_time or until_time"
	selected := changes.Selection{
		ChangeIDs: r.GetChangeIds(), ProcessID: r.GetOfProcessId(), Error: r.GetError(),
		Since: givenTime(r.GetSinceTime()), Until: givenTime(r.GetUntilTime()),
	}
	some := len(selected.ChangeIDs) > 0 || selected.ProcessID != "" || selected.Error != "" ||
		r.GetSinceTime() != nil || r.GetUntilTime() != nil
	switch {
	case r.GetAll() && some:
		return selected, &process.InvalidError{Field: "all",
			Message: "must be false if " + fields + " selects dead letters"}
	case !r.GetAll() && !some:
		return selected, &process.InvalidError{Field: "all",
			Message: "must be true to retry all dead letters; to retry some, set " + fields}
	case r.GetSinceTime() != nil && r.GetUntilTime() != nil && !selected.Since.Before(selected.Until):
		return selected, &process.InvalidError{Field: "until_time", Message: "must be after since_time"}
	}
	return selected, nil
}

// givenTime returns a time, or the zero time if there is none.
func givenTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// errChangeDeleted is recorded in a dead letter whose change no longer exists.
var errChangeDeleted = errors.New("the change was deleted after its retention")

// retries records whether dead letters of a delivery wait to be delivered again.
type retries struct {
	asked   chan struct{} // receives a value when dead letters wait
	pending bool          // dead letters may wait
}

// retry delivers the first dead letter that waits to be delivered again, unless the last delivery
// of the sink failed. It reports whether there was such a dead letter.
func (d *delivery) retry() (bool, error) {
	select {
	case <-d.retries.asked:
		d.retries.pending = true
	default:
	}
	if !d.retries.pending || d.failures > 0 {
		return false, nil
	}
	letter, err := changes.NextRetry(d.ctx, d.sinks.store, d.lease.SinkKey)
	if err != nil {
		return false, d.readFailed(err)
	}
	d.offline = false
	if letter == nil {
		d.retries.pending = false
		return false, nil
	}
	failure := d.deliverAgain(letter)
	id := letter.Change.ChangeID
	switch {
	case d.ctx.Err() != nil:
		return true, context.Cause(d.ctx)
	case failure == nil:
		err = d.store(func(ctx context.Context) error { return changes.EndRetry(ctx, d.sinks.store, d.lease, id) })
	default:
		d.log.Warn("a dead letter was not delivered", "change_id", id, "error", failure)
		err = d.store(func(ctx context.Context) error {
			return changes.FailRetry(ctx, d.sinks.store, d.lease, id, shorten(failure.Error()))
		})
	}
	switch {
	case err != nil:
	case errors.Is(failure, ErrGone):
		err = d.fail(failure)
	default:
		err = d.pause(0)
	}
	return true, err
}

// deliverAgain delivers the change of a dead letter. The filter of the sink does not apply.
func (d *delivery) deliverAgain(letter *changes.Retry) error {
	if letter.Deleted {
		return errChangeDeleted
	}
	m, err := wire.Change(d.lease.Namespace, &letter.Change)
	if err != nil {
		return err
	}
	batch := []*progressorv1.Change{m}
	began := time.Now()
	if err := d.target.Deliver(d.ctx, batch); err != nil {
		return err
	}
	d.sinks.metrics.observe(d, batch, began)
	return nil
}
