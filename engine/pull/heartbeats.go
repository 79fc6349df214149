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

// maxReasonsBytes limits the cancel reasons in the response to a heartbeat. The directives after
// that have none.
const maxReasonsBytes = 4 << 20

// BeatLeases processes a heartbeat of a worker and returns a directive for each of its leases.
func (s *Server) BeatLeases(
	ctx context.Context, r *progressorv1.HeartbeatRequest,
) ([]*progressorv1.LeaseDirective, error) {
	if err := DistinctLeases("beats", r.GetBeats()); err != nil {
		return nil, err
	}
	beats := make([]pull.Beat, 0, len(r.GetBeats()))
	order := make([]int, len(r.GetBeats()))
	for n, b := range r.GetBeats() {
		field := fmt.Sprintf("beats[%d].lease_token", n)
		t, err := parseLeaseToken(field, b.GetLeaseToken())
		if err != nil {
			return nil, err
		}
		if err := s.checkLease(ctx, field, t); err != nil {
			return nil, err
		}
		progress, err := wire.ProgressJSON(b.GetProgress())
		if err != nil {
			return nil, &process.InvalidError{Field: fmt.Sprintf("beats[%d].progress", n), Message: err.Error()}
		}
		if len(progress) > process.MaxProgressBytes {
			return nil, &process.InvalidError{
				Field: fmt.Sprintf("beats[%d].progress", n), TooLarge: true,
				Message: fmt.Sprintf("must have at most %d bytes of JSON (got %d)", process.MaxProgressBytes,
					len(progress)),
			}
		}
		s.workers.recordSeen(r.GetWorkerId(), t.Key.Namespace)
		beats = append(beats, pull.Beat{
			Token: t, Progress: progress, Lease: min(b.GetLeaseDuration().AsDuration(), process.MaxLease),
		})
		order[n] = n
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
