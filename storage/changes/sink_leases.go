package changes

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// SinkLease identifies the lease of a sink. The lease is lost after another claim, a rewind, or the
// deletion of the sink, even if the sink is created again. Then operations that store progress
// return process.ErrFenced, RenewSinks omits the lease, and ReleaseSink does nothing.
type SinkLease struct {
	SinkKey
	NodeID int64 // ID that the node had when it claimed the sink; a node that registers again gets a new ID
	Token  int64
}

// LeaseState is a sink with the node that may deliver for it.
type LeaseState = dbsqlc.ReadSinkLeasesRow

// ClaimedSink is a sink whose lease this node has taken.
type ClaimedSink struct {
	SinkLease
	SinkSettings
	Revision int64         // revision of the settings
	Cursor   Cursor        // position after the changes that were delivered
	Failures int           // number of consecutive failed deliveries
	Wait     time.Duration // time until the next attempt; zero or negative if it is due
}

// ReadSinkLeases returns all sinks with their leases. lease is the duration of a lease.
func ReadSinkLeases(ctx context.Context, s *storage.Store, lease time.Duration) (rows []LeaseState, err error) {
	err = s.RunReserved(ctx, "read sinks", func(ctx context.Context, db storage.DB) (err error) {
		rows, err = dbsqlc.New().ReadSinkLeases(ctx, db, lease.Microseconds())
		return err
	})
	return rows, err
}

// ClaimSinks takes the leases of at most limit sinks that are ACTIVE or FAILING and that no node
// holds. It skips sinks for which another node has just asked (see AskForSink).
func ClaimSinks(
	ctx context.Context, s *storage.Store, lease time.Duration, limit int,
) (claimed []ClaimedSink, err error) {
	var rows []dbsqlc.ClaimSinksRow
	nodeID := s.NodeID()
	err = s.RunLocked(ctx, "claim sinks", nil, func(ctx context.Context, db storage.DB) (err error) {
		rows, err = dbsqlc.New().ClaimSinks(ctx, db, dbsqlc.ClaimSinksParams{
			NodeID: nodeID, LeaseUs: lease.Microseconds(), Lim: int32(limit),
		})
		return err
	})
	for _, r := range rows {
		at := cursorOf(r.Lanes, r.Seqs)
		at.Generation = r.Generation
		claimed = append(claimed, ClaimedSink{
			SinkLease:    SinkLease{SinkKey{r.Namespace, r.SinkID}, nodeID, r.Token},
			SinkSettings: SinkSettings{Config: r.Config, Secrets: r.Secrets}, Revision: r.Revision,
			Cursor: at, Failures: int(r.Failures),
			Wait: time.Duration(r.WaitUs) * time.Microsecond,
		})
	}
	return claimed, err
}

// RenewSinks extends the leases in held, and returns those that this node still holds.
func RenewSinks(
	ctx context.Context, s *storage.Store, lease time.Duration, held []SinkLease,
) (kept map[SinkLease]bool, err error) {
	a := dbsqlc.RenewSinksParams{LeaseUs: lease.Microseconds()}
	for _, l := range held {
		a.Append(dbsqlc.RenewSinksItem{
			Namespace: l.Namespace, SinkID: l.SinkID, NodeID: l.NodeID, Token: l.Token,
		})
	}
	var rows []dbsqlc.RenewSinksRow
	err = s.RunReserved(ctx, "renew leases of sinks", func(ctx context.Context, db storage.DB) (err error) {
		rows, err = dbsqlc.New().RenewSinks(ctx, db, a)
		return err
	})
	kept = map[SinkLease]bool{}
	for _, r := range rows {
		kept[SinkLease{SinkKey{r.Namespace, r.SinkID}, r.NodeID, r.Token}] = true
	}
	return kept, err
}

// AskForSink asks the node that holds a lease to release it for this node.
func AskForSink(ctx context.Context, s *storage.Store, l SinkLease) error {
	return s.RunReserved(ctx, "ask for a sink", func(ctx context.Context, db storage.DB) error {
		return dbsqlc.New().AskForSink(ctx, db, dbsqlc.AskForSinkParams{
			NodeID: s.NodeID(), Namespace: l.Namespace, SinkID: l.SinkID, Token: l.Token,
		})
	})
}

// ReleaseSink gives up a lease, so that any node can claim the sink at once.
func ReleaseSink(ctx context.Context, s *storage.Store, l SinkLease) error {
	return s.RunReserved(ctx, "release a sink", func(ctx context.Context, db storage.DB) error {
		return dbsqlc.New().ReleaseSink(ctx, db, dbsqlc.ReleaseSinkParams{
			Namespace: l.Namespace, SinkID: l.SinkID, NodeID: l.NodeID, Token: l.Token,
		})
	})
}

// AdvanceSink moves the cursor of a sink. delivered is the number of delivered changes. It is 0 if
// the sink selected none of the changes between the old and the new cursor.
func AdvanceSink(ctx context.Context, s *storage.Store, l SinkLease, to Cursor, delivered int) error {
	return s.RunReserved(ctx, "advance a sink", func(ctx context.Context, db storage.DB) error {
		return advance(ctx, db, l, to, dbsqlc.AdvanceSinkParams{Delivered: int64(delivered)})
	})
}

func advance(ctx context.Context, db storage.DB, l SinkLease, to Cursor, a dbsqlc.AdvanceSinkParams) error {
	a.Namespace, a.SinkID, a.NodeID, a.Token, a.Generation = l.Namespace, l.SinkID, l.NodeID, l.Token, to.Generation
	a.Lanes, a.Seqs = to.arrays()
	n, err := dbsqlc.New().AdvanceSink(ctx, db, a)
	if err == nil && n == 0 {
		err = process.ErrFenced
	}
	return err
}

// SinkFailure is a failed attempt to deliver.
type SinkFailure struct {
	State string // FAILING, BROKEN or DISABLED
	Error string
	Wait  time.Duration // time until the next attempt of a FAILING sink
}

// FailSink stores a failed attempt to deliver. It returns process.ErrFenced if the node no longer
// holds the lease.
func FailSink(ctx context.Context, s *storage.Store, l SinkLease, f SinkFailure) error {
	return s.RunReserved(ctx, "store the failure of a sink", func(ctx context.Context, db storage.DB) error {
		n, err := dbsqlc.New().FailSink(ctx, db, dbsqlc.FailSinkParams{
			Namespace: l.Namespace, SinkID: l.SinkID, NodeID: l.NodeID, Token: l.Token, State: f.State,
			Error: f.Error, WaitUs: f.Wait.Microseconds(),
		})
		if err == nil && n == 0 {
			err = process.ErrFenced
		}
		return err
	})
}
