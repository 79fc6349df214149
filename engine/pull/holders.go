package pull

import (
	"context"
	"slices"

	"github.com/progressor-engine/progressor/storage/pull"
)

// holders returns who holds each lease, or nil if the lease was lost. It uses one statement to read
// the leases that this node has not handed out.
func (s *Server) holders(ctx context.Context, tokens []pull.LeaseToken) ([]*pull.Holder, error) {
	all := make([]*pull.Holder, len(tokens))
	var unknown []pull.LeaseToken
	var at []int // the index of each among the tokens
	for n, t := range tokens {
		if l := s.leased.get(t); l != nil {
			all[n] = &pull.Holder{WorkerID: l.WorkerID, JobName: l.Claim.KindName}
		} else {
			unknown, at = append(unknown, t), append(at, n)
		}
	}
	if len(unknown) == 0 {
		return all, nil
	}
	read, err := pull.ReadHolders(ctx, s.store, unknown)
	for n, h := range read {
		all[at[n]] = h
	}
	return all, err
}

// checkJobs returns an error if the caller may not work on the tasks of leases. It skips leases
// that were lost. field returns the field of the nth lease.
func (s *Server) checkJobs(ctx context.Context, field func(n int) string, tokens []pull.LeaseToken) error {
	c := callerOf(ctx)
	limited := func(t pull.LeaseToken) bool { return c.jobs(t.Key.Namespace) != nil }
	if !slices.ContainsFunc(tokens, limited) {
		return nil
	}
	held, err := s.holders(ctx, tokens)
	if err != nil {
		return err
	}
	return c.checkHolders(field, tokens, held)
}

// checkLeases is like checkJobs, but also returns an error if a lease belongs to a worker of
// another client.
func (s *Server) checkLeases(ctx context.Context, field func(n int) string, tokens []pull.LeaseToken) error {
	c := callerOf(ctx)
	if c.Owner == "" {
		return s.checkJobs(ctx, field, tokens)
	}
	held, err := s.holders(ctx, tokens)
	if err != nil {
		return err
	}
	if err := c.checkHolders(field, tokens, held); err != nil {
		return err
	}
	var seen []pull.WorkerKey
	var at []int // the index of each among the tokens
	for n, h := range held {
		if h != nil {
			seen = append(seen, pull.WorkerKey{Namespace: tokens[n].Key.Namespace, WorkerID: h.WorkerID})
			at = append(at, n)
		}
	}
	return s.workers.own(ctx, func(n int) string { return field(at[n]) }, seen...)
}

func (c *Caller) checkHolders(field func(n int) string, tokens []pull.LeaseToken, held []*pull.Holder) error {
	for n, h := range held {
		if h == nil {
			continue
		}
		if err := c.checkJob(field(n), tokens[n].Key.Namespace, h.JobName); err != nil {
			return err
		}
	}
	return nil
}
