package jobs_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// The counts of user processes agree with the list of user processes, regardless of the states of
// jobs and other internal processes.
func TestCountUserProcesses(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	by := process.Actor{}
	begin := func(id, kind string) {
		t.Helper()
		_, err := n.Start(t.Context(), engine.StartParams{Key: key("pull", id), Kind: kind, Accepted: true})
		must(t, err)
	}
	suspend := func(id string) {
		t.Helper()
		_, err := n.SuspendProcess(t.Context(), key("pull", id), "", by)
		must(t, err)
	}
	n.enqueue(t, "pull", "succeeded", nil)
	must(t, n.succeed(n.leaseOne(t, "w"), nil))
	n.enqueue(t, "pull", "failed", nil)
	must(t, n.fail(n.leaseOne(t, "w"), "no"))
	n.enqueue(t, "pull", "running", nil)
	n.leaseOne(t, "w")
	n.enqueue(t, "pull", "suspended while it runs", nil)
	n.leaseOne(t, "w")
	suspend("suspended while it runs")
	for _, id := range []string{"available", "suspended job", "cancelled", "removed"} {
		n.enqueue(t, "pull", id, nil)
	}
	suspend("suspended job")
	for _, id := range []string{"cancelled", "removed"} {
		_, err := n.Cancel(t.Context(), key("pull", id), "", by)
		must(t, err)
	}
	must(t, n.Remove(t.Context(), key("pull", "removed"), by))
	n.enqueue(t, "pull", "group", workers(3, 0))
	n.members(t, "group", 3)
	for _, id := range []string{"a", "b", "c", "~run/tick/1"} {
		begin(id, "")
	}
	begin("~flow/r", "flow")
	suspend("b")
	_, err := n.CancelProcess(t.Context(), engine.CancelParams{Key: key("pull", "c"), Actor: by})
	must(t, err)
	n.enqueue(t, "ns", "elsewhere", nil)

	enginetest.Eventually(t, testTimeout, "the counts agree with the list", func() bool {
		counts, err := n.CountUserProcesses(t.Context(), "pull")
		must(t, err)
		all, err := n.CountProcesses(t.Context(), "pull")
		must(t, err)
		for status, users := range counts.GetCountByStatus() {
			all[status] -= users
		}
		list, _, err := n.ListProcesses(t.Context(),
			&progressorv1.ListProcessesRequest{Namespace: "pull", UsersOnly: true})
		must(t, err)
		var got []string
		listed := map[string]int64{"running": 0, "error": 0, "suspended": 0, "completed": 0, "cancelled": 0}
		for _, p := range list {
			got = append(got, p.GetProcessId())
			status := strings.ToLower(strings.TrimPrefix(p.GetStatus().String(), "PROCESS_STATUS_"))
			if status == "init" {
				status = "running"
			}
			listed[status]++
		}
		if counts.GetAtMost() || strings.Join(got, " ") != "c b a" {
			t.Fatalf("%q, %v", got, counts)
		}
		return maps.Equal(counts.GetCountByStatus(), listed) && maps.Equal(counts.GetInternalByStatus(), all)
	})
	enginetest.Eventually(t, testTimeout, "the overview agrees", func() bool { return overviewAgrees(t, n) })
}

// overviewAgrees reports whether the overview and the counts of all namespaces agree. All user
// processes are in pull, because ns has only a job, which is not a user process.
func overviewAgrees(t *testing.T, n *node) bool {
	t.Helper()
	pull, err := n.CountUserProcesses(t.Context(), "pull")
	must(t, err)
	all, err := n.CountUserProcesses(t.Context(), "")
	must(t, err)
	if !maps.Equal(all.GetCountByStatus(), pull.GetCountByStatus()) {
		t.Fatalf("counts of all namespaces: %v, want %v", all, pull)
	}
	o, err := n.GetOverview(t.Context(), "", 0)
	must(t, err)
	for _, ns := range o.GetNamespaces() {
		if ns.GetNamespace() == "ns" && (ns.GetInternalByStatus()["completed"] != 1 ||
			!maps.Equal(ns.GetCountByStatus(), ns.GetInternalByStatus())) {
			return false
		}
	}
	return maps.Equal(o.GetInternalByStatus(), all.GetInternalByStatus()) && !o.GetInternalMore()
}
