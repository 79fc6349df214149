package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/wire"
)

func groupRules(g *progressorv1.WorkerGroup) jobs.GroupRules {
	return jobs.GroupRules{Count: max(g.GetCount(), 1), MaxFailures: g.GetMaxFailures(), WorkerIDs: g.GetWorkerIds()}
}

// groups makes the decisions about jobs for several workers. It runs on every node. While a
// decision is due, the task of such a job waits for the engine. A change on this node wakes groups
// immediately. Each pass of the collector also wakes groups, for work that other nodes have left
// unfinished (see Jobs.observeNamespaces).
type groups struct {
	jobs  *Jobs
	woken chan struct{}

	mu       sync.Mutex
	stranded []string // namespaces whose tasks workers cannot take, but in which groups wait for members
}

// groupsBatch is the number of groups that one transaction checks.
const groupsBatch = 32

func newGroups(q *Jobs) *groups { return &groups{jobs: q, woken: make(chan struct{}, 1)} }

// wake requests a check of the groups. It never blocks.
func (g *groups) wake() {
	select {
	case g.woken <- struct{}{}:
	default:
	}
}

// Run checks groups when it is woken, until ctx ends.
func (g *groups) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.woken:
		}
		if err := g.wakeStranded(ctx); err != nil {
			g.jobs.engine.ReportScanError(ctx, "groups", err)
		}
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = g.check(ctx); err != nil {
				g.jobs.engine.ReportScanError(ctx, "groups", err)
			}
		}
	}
}

// check decides about one batch of groups. more is true if there may be more.
func (g *groups) check(ctx context.Context) (more bool, err error) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), txTimeout)
	defer cancel()
	checked, err := jobs.CheckGroups(limit, g.jobs.store, groupsBatch, func(g *jobs.Group) jobs.GroupRules {
		options, _ := wire.JobOptions(g.Options) // unreadable options mean one worker
		return groupRules(options.GetWorkers())
	}, func(group *jobs.Group, rules jobs.GroupRules) jobs.GroupStep {
		step := nextStep(group, rules)
		if step.Outcome == "" && !g.jobs.engine.IsPulled(ctx, group.Key.Namespace) {
			return strandedStep(group)
		}
		return step
	})
	if err != nil {
		return false, err
	}
	g.jobs.engine.AnnounceEnds(checked.Ended, checked.Notified)
	if len(checked.Ended) > 0 {
		g.jobs.engine.WakePollers() // other jobs that wait for their keys may continue
	}
	at := time.Duration(0)
	for _, member := range checked.Evict { // the group keeps the member until it has ended
		if _, err := g.jobs.engine.CancelProcess(limit, engine.CancelParams{
			Key: member, Reason: "its worker is no longer allowed to run it", Grace: &at,
		}); err != nil {
			return false, err
		}
	}
	return checked.Groups == groupsBatch, nil
}

// tally counts the members of a group by result.
type tally struct {
	succeeded, failed int
	last              *jobs.Place // the newest place that has failed
	open              []*jobs.Place
	cancelled         []process.Key
	takers            []string // workers that have a place or have used one
	left              int      // allowed workers that can still succeed
}

func tallyOf(g *jobs.Group, rules jobs.GroupRules) tally {
	var t tally
	spent := map[string]bool{}
	for n := range g.Places {
		p := &g.Places[n]
		switch p.State {
		case jobs.PlaceSucceeded:
			t.succeeded++
			spent[p.WorkerID] = true
		case jobs.PlaceFailed:
			t.failed++
			t.last = p
			spent[p.WorkerID] = true
		case jobs.PlaceCancelled:
			t.cancelled = append(t.cancelled, p.Member)
			continue
		default:
			t.open = append(t.open, p)
		}
		if p.WorkerID != "" {
			t.takers = append(t.takers, p.WorkerID)
		}
	}
	for _, id := range rules.WorkerIDs {
		if !spent[id] {
			t.left++
		}
	}
	return t
}

// nextStep decides the next step of a job for several workers from the results of its members. It
// is a pure function.
func nextStep(g *jobs.Group, rules jobs.GroupRules) jobs.GroupStep {
	t := tallyOf(g, rules)
	missing := int(rules.Count) - t.succeeded
	step := jobs.GroupStep{Cancel: unasked(t.open), Takers: t.takers}
	switch {
	case missing <= 0:
		options, _ := wire.JobOptions(g.Options)
		step.Outcome, step.Reason = jobs.PlaceSucceeded, "enough workers have succeeded"
		step.Kept, step.TTL = options.GetKeepResult(), resultTTL(options)
		return step
	case g.Cancelling && len(t.open) == 0:
		step.Outcome = jobs.PlaceCancelled
		return step
	case g.Cancelling:
		step.Reason = g.CancelReason
		return step
	case t.last != nil && (t.failed > int(rules.MaxFailures) || len(rules.WorkerIDs) > 0 && t.left < missing):
		step.Outcome, step.Reason = jobs.PlaceFailed, "too many workers have failed"
		step.Failure, step.Detail = lastFailure(t, rules, missing)
		return step
	}
	step = jobs.GroupStep{Drop: t.cancelled, Takers: t.takers, Reason: "fewer workers are needed"}
	for _, p := range t.open {
		if p.WorkerID != "" && len(rules.WorkerIDs) > 0 && !slices.Contains(rules.WorkerIDs, p.WorkerID) {
			step.Evict = append(step.Evict, p.Member)
		}
	}
	if surplus := len(t.open) - missing; surplus > 0 {
		step.Cancel = unasked(t.open[missing:])
	}
	// If every allowed worker has to succeed, each place is for one worker, and other workers do
	// not read it.
	allListed := len(rules.WorkerIDs) == int(rules.Count)
	for range missing - len(t.open) {
		worker := ""
		if allListed {
			free := slices.IndexFunc(rules.WorkerIDs, func(id string) bool { return !slices.Contains(step.Takers, id) })
			if free < 0 {
				break // a member that is being cancelled still has the place
			}
			worker = rules.WorkerIDs[free]
			step.Takers = append(step.Takers, worker)
		}
		step.Open = append(step.Open, worker)
	}
	return step
}

// unasked returns the members that have not been asked to end.
func unasked(places []*jobs.Place) (members []process.Key) {
	for _, p := range places {
		if !p.Asked {
			members = append(members, p.Member)
		}
	}
	return members
}

// lastFailure returns the failure of a group, which is that of the last worker that failed.
func lastFailure(t tally, rules jobs.GroupRules, missing int) (failure []byte, detail string) {
	detail = fmt.Sprintf("%d workers failed, at most %d may fail: ", t.failed, rules.MaxFailures)
	if t.failed <= int(rules.MaxFailures) {
		detail = fmt.Sprintf("only %d workers are left for %d successes: ", t.left, missing)
	}
	why := &progressorv1.Failure{Reason: process.ReasonBadResponse}
	if f, err := wire.Failure(t.last.Failure); err == nil && f != nil {
		why = f
	}
	detail += fmt.Sprintf("%s: %s", t.last.WorkerID, cmp.Or(why.GetMessage(), why.GetReason()))
	text, _ := wire.FailureJSON(why) // why was parsed from valid JSON
	return text, short(detail)
}
