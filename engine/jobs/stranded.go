package jobs

import (
	"context"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/wire"
)

// Enqueue refuses a job for several workers if the tasks of its namespace go to a processor. Such a
// job can still exist, because the processor of the namespace has changed, or because a cron, a
// flow or RetryJob has created the job. The engine fails the job with a reason, because no worker
// would ever take it.

// strand records the namespaces in which groups wait for members that no worker can take. It
// reports whether there are any such namespaces.
func (g *groups) strand(all []storage.NamespaceState) bool {
	var stranded []string
	for n := range all {
		if all[n].Grouped && !g.jobs.engine.IsPulled(context.Background(), all[n].Namespace) {
			stranded = append(stranded, all[n].Namespace)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stranded = stranded
	return len(stranded) > 0
}

// wakeStranded wakes groups of stranded namespaces, one batch at a time.
func (g *groups) wakeStranded(ctx context.Context) error {
	g.mu.Lock()
	stranded := g.stranded
	g.stranded = nil
	g.mu.Unlock()
	if len(stranded) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), txTimeout)
	defer cancel()
	return jobs.WakeGroups(ctx, g.jobs.store, stranded, groupsBatch)
}

// strandedStep ends a group in a namespace whose tasks workers cannot take. Its members are asked
// to end.
func strandedStep(g *jobs.Group) jobs.GroupStep {
	message := fmt.Sprintf("a job for several workers needs a namespace whose processor is pull: "+
		"namespace %q calls its processor", g.Key.Namespace)
	failure := &progressorv1.Failure{Reason: process.ReasonNoWorkers, Message: message}
	text, _ := wire.FailureJSON(failure) // plain strings: this cannot fail
	return jobs.GroupStep{
		Outcome: jobs.PlaceFailed, Failure: text, Detail: message,
		Cancel: unasked(tallyOf(g, jobs.GroupRules{}).open),
		Reason: "workers cannot take tasks of this namespace",
	}
}
