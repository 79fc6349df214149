package sinks

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/changes"
)

// limits are the times and sizes of the runner.
type limits struct {
	lease      time.Duration // how long a node may deliver without renewing its lease
	renew      time.Duration // between renewals
	margin     time.Duration // a node stops using a lease this long before the lease expires
	poll       time.Duration // between reads of the sinks
	claims     int           // sinks that a node claims per read, so that other nodes get some
	stop       time.Duration // how long a stopping node waits for a delivery to end
	statement  time.Duration // limit of one statement of the runner
	changes    int           // limit of one read, and therefore of one delivery
	bytes      int64         // limit of one read
	pace       changes.Pace
	save       time.Duration // maximum age of an unstored cursor that has moved only past unselected changes
	retry      process.RetryPolicy
	storeRetry time.Duration // between attempts while the database is unavailable
}

// defaultLimits are the limits outside of tests. A failed delivery is repeated after 1 s. The wait
// doubles each time, up to 5 minutes.
var defaultLimits = limits{
	lease: 15 * time.Second, renew: 4 * time.Second, margin: 2 * time.Second, poll: time.Second, claims: 4,
	stop: 5 * time.Second, statement: 5 * time.Second, changes: 500, bytes: 1 << 20,
	pace: changes.UsualPace, save: time.Second,
	retry:      process.RetryPolicy{Initial: time.Second, Coefficient: 2, Max: 5 * time.Minute, JitterPortion: 0.1},
	storeRetry: time.Second,
}

// runner claims sinks for a node and starts their deliveries.
type runner struct {
	*Sinks
	notices *notices
	held    map[changes.SinkKey]*delivery // deliveries of the sinks whose leases this node holds
	renewed time.Time                     // when the leases were renewed
	failing bool                          // the last pass failed
}

// run delivers until ctx is cancelled. A node that runs no tasks only notifies the other nodes when
// it has recorded changes.
func (s *Sinks) run(ctx context.Context) error {
	r := &runner{Sinks: s, notices: newNotices(s), held: map[changes.SinkKey]*delivery{}}
	var noticing sync.WaitGroup
	defer noticing.Wait()
	noticing.Go(func() { r.notices.run(ctx) })
	ticker := time.NewTicker(s.limits.poll)
	defer ticker.Stop()
	for {
		err := r.pass(ctx)
		if err != nil && ctx.Err() == nil && !r.failing { // log only once while the database is unavailable
			s.log.Warn("cannot read the sinks", "error", err)
		}
		r.failing = err != nil
		select {
		case <-ctx.Done():
			r.stop()
			r.notices.follow(nil, nil)
			return nil
		case <-ticker.C:
		case <-s.woken:
		}
	}
}

// pass renews the leases, ends the deliveries of sinks that have changed or that another node asks
// for, and claims sinks.
func (r *runner) pass(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.limits.statement)
	defer cancel()
	r.forgetEnded()
	if err := r.renew(ctx); err != nil {
		return err
	}
	rows, err := changes.ReadSinkLeases(ctx, r.store, r.limits.lease)
	if err != nil {
		return err
	}
	r.notices.follow(rows, r.delivers)
	states := map[changes.SinkKey]*changes.LeaseState{}
	claimable := false
	for n := range rows {
		row := &rows[n]
		states[changes.SinkKey{Namespace: row.Namespace, SinkID: row.SinkID}] = row
		claimable = claimable || row.Runs && row.Free
	}
	for key, d := range r.held {
		switch state := states[key]; {
		case state == nil || state.Token != d.lease.Token || state.NodeID != d.lease.NodeID:
			d.abort(errLeaseLost)
		case !state.Runs || state.Revision != d.claimed.Revision || state.AskedNodeID != 0:
			d.end()
		case state.Retries:
			signal(d.retries.asked)
		}
	}
	switch {
	case r.engine.RequestsOnly():
		return nil
	case claimable:
		return r.claim(ctx)
	default:
		return r.balance(ctx, rows)
	}
}

// balance asks the node with the most sinks to release one, if it has at least two more than this
// node.
func (r *runner) balance(ctx context.Context, rows []changes.LeaseState) error {
	byNode := map[int64][]*changes.LeaseState{}
	for n := range rows {
		if row := &rows[n]; row.Runs && !row.Free && row.AskedNodeID == 0 {
			byNode[row.NodeID] = append(byNode[row.NodeID], row)
		}
	}
	var most []*changes.LeaseState
	for node, leases := range byNode {
		if node != r.store.NodeID() && len(leases) > len(most) {
			most = leases
		}
	}
	if len(most) < len(r.held)+2 {
		return nil
	}
	row := most[rand.IntN(len(most))]
	return changes.AskForSink(ctx, r.store, changes.SinkLease{
		SinkKey: changes.SinkKey{Namespace: row.Namespace, SinkID: row.SinkID}, Token: row.Token,
	})
}

// delivers reports whether this node delivers for a sink.
func (r *runner) delivers(row *changes.LeaseState) bool {
	return r.held[changes.SinkKey{Namespace: row.Namespace, SinkID: row.SinkID}] != nil
}

// forgetEnded drops the deliveries that have ended.
func (r *runner) forgetEnded() {
	for key, d := range r.held {
		select {
		case <-d.done:
			delete(r.held, key)
		default:
		}
	}
}

// renew extends the leases that are due, and aborts deliveries that have lost theirs.
func (r *runner) renew(ctx context.Context) error {
	if len(r.held) == 0 || time.Since(r.renewed) < r.limits.renew {
		return nil
	}
	var leases []changes.SinkLease
	for _, d := range r.held {
		leases = append(leases, d.lease)
	}
	sent := time.Now()
	kept, err := changes.RenewSinks(ctx, r.store, r.limits.lease, leases)
	if err != nil {
		return err
	}
	r.renewed = sent
	for _, d := range r.held {
		if !kept[d.lease] {
			d.abort(errLeaseLost)
			continue
		}
		d.expiry.Reset(time.Until(sent.Add(r.limits.lease - r.limits.margin)))
	}
	return nil
}

var errLeaseLost = errors.New("the lease of the sink has expired")

// claim takes the leases of sinks that no node holds, and starts to deliver for them.
func (r *runner) claim(ctx context.Context) error {
	sent := time.Now()
	claimed, err := changes.ClaimSinks(ctx, r.store, r.limits.lease, r.limits.claims)
	if err != nil {
		return err
	}
	if len(r.held) == 0 {
		r.renewed = sent
	}
	for _, c := range claimed {
		if old := r.held[c.SinkKey]; old != nil { // its lease has expired, so the old delivery must end
			old.abort(errLeaseLost)
			<-old.done
		}
		d := newDelivery(r.Sinks, c)
		d.expiry = time.AfterFunc(time.Until(sent.Add(r.limits.lease-r.limits.margin)),
			func() { d.abort(errLeaseLost) })
		r.held[c.SinkKey] = d
		go d.run()
	}
	if len(claimed) == r.limits.claims {
		r.wake()
	}
	return nil
}

// stop ends all deliveries. It waits for those in progress, and aborts them if that takes too long.
func (r *runner) stop() {
	for _, d := range r.held {
		d.end()
	}
	timer := time.NewTimer(r.limits.stop)
	defer timer.Stop()
	for _, d := range r.held {
		select {
		case <-d.done:
		case <-timer.C:
			for _, d := range r.held {
				d.abort(errStopping)
			}
			timer.Reset(0)
		}
	}
	for _, d := range r.held {
		<-d.done
	}
}

var errStopping = errors.New("the node is stopping")
