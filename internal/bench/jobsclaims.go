package bench

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// jobsClaims is the name of the workload that compares jobs that need a key of a constraint with
// jobs that need none. It measures three phases: getting the key, claiming, and ending.
const jobsClaims = "jobs-claims"

const (
	keyedNamespace = "keyed" // every job needs one of keysOfJobs keys, and gets it at once
	plainNamespace = "plain"
	claimBatch     = 100   // number of jobs that one Poll claims
	claimRound     = 1000  // jobs of one namespace that are claimed or ended before the other namespace takes its turn
	claimedAtMost  = 20000 // maximum per namespace: all jobs are claimed before one ends, and a job may take 30 s
)

// claims measures how fast workers claim jobs by Poll in the same program, from a namespace without
// constraints and from one where each job holds a key. The namespaces take turns of a thousand
// jobs, so that a change of the machine's speed affects both.
func (r *runner) claims(ctx context.Context, v variant) error {
	n := min(r.command.Jobs, claimedAtMost) / jobBatch * jobBatch
	var rows []*Row
	add := func(name, note string) *Row {
		row := v.row(subjectEngine)
		row.Workload, row.Note = v.name()+": "+name, note
		rows = append(rows, row)
		return row
	}
	given := add("give", fmt.Sprintf("%d that wait get one of %d keys", n, keysOfJobs))
	err := r.onEngine(ctx, v.history, newJobProcessor(0), given, func(d *scratch, s *site) (acknowledged, error) {
		if err := r.enqueueKeyed(ctx, d, s, v, n, given); err != nil {
			return nil, err
		}
		if err := r.settle(ctx, d.analyze); err != nil {
			return nil, err
		}
		tokens := map[string][]string{}
		err := r.inTurn(ctx, s, n, add, "claim", func(ctx context.Context, namespace string) error {
			for range claimRound / claimBatch {
				leases, err := s.workers.Poll(ctx,
					pull.PollParams{Namespaces: []string{namespace}, WorkerID: "bench", Max: claimBatch,
						Lease: time.Hour})
				if err != nil {
					return err
				}
				if len(leases) != claimBatch {
					return fmt.Errorf("a poll of %s has claimed %d jobs, want %d", namespace, len(leases), claimBatch)
				}
				for _, l := range leases {
					tokens[namespace] = append(tokens[namespace], l.GetLeaseToken())
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		err = r.inTurn(ctx, s, n, add, "end", func(ctx context.Context, namespace string) error {
			answer, err := processor.Result().Complete().Done()
			if err != nil {
				return err
			}
			ends := make([]pull.LeaseEnd, claimRound)
			for k, token := range tokens[namespace][:claimRound] {
				ends[k] = pull.LeaseEnd{Token: token, Answer: engine.LeaseAnswer{Response: answer}}
			}
			tokens[namespace] = tokens[namespace][claimRound:]
			return cmp.Or(s.workers.CompleteLeases(ctx, ends)...) // one error is enough
		})
		return acknowledged{process.TaskInit: int64(2 * n)}, err
	})
	for _, row := range rows {
		row.Checked = given.Checked
		r.report.Rows = append(r.report.Rows, row)
	}
	return err
}

// enqueueKeyed enqueues n jobs in each of the namespaces. It measures how fast the jobs that need a
// key get it when their namespace is resumed.
func (r *runner) enqueueKeyed(ctx context.Context, d *scratch, s *site, v variant, n int, given *Row) error {
	for _, namespace := range []string{plainNamespace, keyedNamespace} {
		ns := &progressorv1.Namespace{Namespace: namespace, Processor: &progressorv1.ProcessorConfig{
			Transport: &progressorv1.ProcessorConfig_Pull{Pull: &progressorv1.PullProcessor{}},
		}}
		if v.events != "" {
			ns = v.withEvents(ns)
		}
		if _, err := s.engine.PutNamespace(ctx, ns); err != nil {
			return err
		}
	}
	c := &progressorv1.Constraint{Namespace: keyedNamespace, Name: "to", Match: `job.name == "send_mail"`,
		Key: "job.args.to", MaxRunning: int32(n)}
	if _, err := s.jobs.PutConstraint(ctx, c); err != nil {
		return err
	}
	if _, err := s.engine.SetNamespacePaused(ctx, keyedNamespace, true); err != nil {
		return err
	}
	err := each(ctx, 2*n/jobBatch, jobClients, func(ctx context.Context, k int) error {
		batch := jobsOf(jobBatch)
		for _, job := range batch.GetJobs() {
			job.Namespace = []string{plainNamespace, keyedNamespace}[k%2]
		}
		_, err := s.jobs.EnqueueBatch(ctx, batch)
		return err
	})
	if err != nil {
		return err
	}
	return r.spentOn(ctx, d, s, int64(n), given, func() error {
		if _, err := s.engine.SetNamespacePaused(ctx, keyedNamespace, false); err != nil {
			return err
		}
		return d.waitNone(ctx, time.Minute, 2*time.Millisecond,
			"SELECT EXISTS (SELECT 1 FROM schedule WHERE waits_for = 'constraint')::int")
	})
}

// inTurn processes claimRound jobs of one namespace, then of the other, until n of each are done.
func (r *runner) inTurn(
	ctx context.Context, s *site, n int, add func(name, note string) *Row, name string,
	do func(ctx context.Context, namespace string) error,
) error {
	plain, keyed := add(name, "without keys"),
		add(name, fmt.Sprintf("each holds one of %d keys; in turn with those without", keysOfJobs))
	r.step(keyed.Workload)
	m := r.meterOf(s)
	var sum [2]spent
	for round := range n / claimRound {
		for k := range 2 {
			k = (k + round) % 2 // the first namespace changes each round
			cost, err := m.measure(ctx, func() error { return do(ctx, []string{plainNamespace, keyedNamespace}[k]) })
			if err != nil {
				return err
			}
			sum[k].add(cost)
		}
	}
	plain.fill(int64(n), sum[0].elapsed, nil, sum[0])
	keyed.fill(int64(n), sum[1].elapsed, nil, sum[1])
	keyed.compare(plain, "without keys")
	return nil
}

// add adds the costs of more to s. flushItems is a mean, so it is replaced.
func (s *spent) add(more spent) {
	s.elapsed += more.elapsed
	if more.walBytes != nil {
		s.walBytes = new(*more.walBytes + deref(s.walBytes))
	}
	if more.postgresTime != nil {
		s.postgresTime = new(*more.postgresTime + deref(s.postgresTime))
	}
	if more.engineTime != nil {
		s.engineTime = new(*more.engineTime + deref(s.engineTime))
	}
	s.flushItems = more.flushItems
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
