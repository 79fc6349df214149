package jobs_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/progressor-engine/progressor/engine"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestErrorGroupsOfJobs checks that failed jobs and failed processes with the same error are in
// separate groups, and that the filter of a group matches exactly its members.
func TestErrorGroupsOfJobs(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	fails := func(message string) {
		t.Helper()
		must(t, n.CompleteLease(t.Context(), n.leaseOne(t, "w").GetLeaseToken(), engine.LeaseAnswer{
			Response: &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{
				Failure: &progressorv1.Failure{Reason: "late", Message: message, NonRetryable: true},
			}},
		}))
	}
	for i, message := range []string{"order 1 is late", "order 2 is late", "no order"} {
		n.enqueue(t, "pull", fmt.Sprint("j", i), nil)
		fails(message)
	}
	_, err := n.Start(t.Context(), engine.StartParams{Key: key("pull", "p"), Accepted: true})
	must(t, err)
	fails("order 3 is late")
	var got []string
	token := ""
	for page := true; page; page = token != "" {
		groups, next, err := n.ListErrors(t.Context(), "pull", 1, token)
		must(t, err)
		token = next
		for _, g := range groups {
			got = append(got, fmt.Sprint(g.GetCount(), " of ", n.found(t, g), " ", g.GetNewestId()))
		}
	}
	slices.Sort(got)
	if want := []string{"1 of 1 jobs j2", "1 of 1 processes p", "2 of 2 jobs j1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// found counts what the filter of a group of errors matches.
func (n *node) found(t *testing.T, g *progressorv1.ErrorGroup) string {
	t.Helper()
	if g.GetJobs() {
		list, _, err := n.List(t.Context(), &progressorv1.ListJobsRequest{Namespace: "pull", Filter: g.GetFilter()})
		must(t, err)
		return fmt.Sprint(len(list), " jobs")
	}
	list, _, err := n.ListProcesses(t.Context(),
		&progressorv1.ListProcessesRequest{Namespace: "pull", Filter: g.GetFilter()})
	must(t, err)
	return fmt.Sprint(len(list), " processes")
}
