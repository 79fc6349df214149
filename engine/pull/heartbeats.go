package pull

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/pull"
	"github.com/progressor-engine/progressor/wire"
)

// maxReasonsBytes limits the total size of the cancel reasons in the response to a heartbeat.
// Beyond it, directives are sent without a reason.
const maxReasonsBytes = 4 << 20

// BeatLeases processes a heartbeat of a worker and returns a directive for each of its leases.
func (s *Server) BeatLeases(
	ctx context.Context, r *progressorv1.HeartbeatRequest,
) ([]*progressorv1.LeaseDirective, error) {
	if err := DistinctLeases("beats", r.GetBeats()); err != nil {
		return nil, err
	}
	beats := make([]pull.Beat, len(r.GetBeats()))
	order := make([]int, len(r.GetBeats()))
	for n, b := range r.GetBeats() {
		var err error
		if beats[n], err = beatOf(fmt.Sprintf("beats[%d]", n), b); err != nil {
			return nil, err
		}
		order[n] = n
	}
	if err := s.checkBeats(ctx, r.GetWorkerId(), beats); err != nil {
		return nil, err
	}
	// Sort the beats so that concurrent heartbeats and results lock rows in the same order.
	slices.SortFunc(order, func(a, b int) int { return beats[a].Token.Key.Compare(beats[b].Token.Key) })
	sorted := make([]pull.Beat, len(beats))
	for n, at := range order {
		sorted[n] = beats[at]
	}
	beaten, err := pull.BeatAll(ctx, s.store, r.GetWorkerId(), sorted)
	if err != nil {
		return nil, err
	}
	directives := make([]*progressorv1.LeaseDirective, len(beats))
	reasons := 0 // bytes of reasons in the response
	for n, at := range order {
		b := beaten[n]
		d := &progressorv1.LeaseDirective{
			LeaseToken: r.GetBeats()[at].GetLeaseToken(), Directive: progressorv1.LeaseDirective_DIRECTIVE_CONTINUE,
		}
		switch {
		case b.LeaseLost:
			d.Directive = progressorv1.LeaseDirective_DIRECTIVE_LOST
			s.leased.drop(beats[at].Token)
		case b.Cancelling:
			d.Directive = progressorv1.LeaseDirective_DIRECTIVE_CANCEL
			if reasons < maxReasonsBytes {
				d.CancelReason = b.CancelReason
				reasons += len(b.CancelReason)
			}
		}
		if !b.LeaseLost {
			d.ExpiresTime, d.HeartbeatInterval = timestamppb.New(b.ExpiresTime), durationpb.New(b.Heartbeat)
		}
		directives[at] = d
	}
	return directives, nil
}

// checkBeats returns an error if the caller may not send heartbeats of a worker. BeatAll checks
// that the leases belong to this worker.
func (s *Server) checkBeats(ctx context.Context, workerID string, beats []pull.Beat) error {
	tokens := make([]pull.LeaseToken, len(beats))
	var namespaces []string
	for n := range beats {
		tokens[n] = beats[n].Token
		namespaces = append(namespaces, beats[n].Token.Key.Namespace)
	}
	field := func(n int) string { return fmt.Sprintf("beats[%d].lease_token", n) }
	if err := s.checkJobs(ctx, field, tokens); err != nil {
		return err
	}
	slices.Sort(namespaces)
	return s.workers.own(ctx, ofWorkerID, seenIn(workerID, slices.Compact(namespaces))...)
}

// beatOf returns the heartbeat for a lease.
func beatOf(field string, b *progressorv1.LeaseBeat) (beat pull.Beat, err error) {
	t, err := parseLeaseToken(field+".lease_token", b.GetLeaseToken())
	if err != nil {
		return beat, err
	}
	progress, err := wire.ProgressJSON(b.GetProgress())
	if err != nil {
		return beat, &process.InvalidError{Field: field + ".progress", Message: err.Error()}
	}
	if len(progress) > process.MaxProgressBytes {
		return beat, &process.InvalidError{
			Field: field + ".progress", TooLarge: true,
			Message: fmt.Sprintf("must have at most %d bytes of JSON (got %d)", process.MaxProgressBytes,
				len(progress)),
		}
	}
	return pull.Beat{
		Token: t, Progress: progress, Lease: min(b.GetLeaseDuration().AsDuration(), process.MaxLease),
	}, nil
}
