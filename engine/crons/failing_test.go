package crons_test

import (
	"context"
	"fmt"
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A cron whose last run failed is listed in the errors with its number of consecutive failures, and
// counted in the overview, until a run succeeds.
func TestFailingCrons(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	ctx := context.Background()
	for id, args := range map[string]string{"bad": "fail", "late": "timeout", "good": "complete", "idle": "complete"} {
		n.create(t, starts(id, never, args))
	}
	run := func(id string, status progressorv1.FireStatus) {
		t.Helper()
		before := len(n.fires(t, id))
		if _, err := n.Trigger(ctx, &progressorv1.TriggerCronRequest{Namespace: "ns", CronId: id}, kim); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the run ends", func() bool {
			fires := n.fires(t, id)
			return len(fires) > before && fires[before].GetStatus() == status
		})
	}
	seen := func() string {
		t.Helper()
		groups, _, err := n.ListErrors(ctx, "ns", 0, "")
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, g := range groups {
			if g.GetCronId() == "" {
				continue // the failed process of the run
			}
			found, _, err := n.List(ctx, &progressorv1.ListCronsRequest{Namespace: "ns", Filter: g.GetFilter()})
			if err != nil || len(found) != 1 || found[0].GetCronId() != g.GetCronId() ||
				int64(found[0].GetFailures()) != g.GetCount() {
				t.Errorf("%s finds %v, %v", g.GetFilter(), found, err)
			}
			if g.GetFirstTime().AsTime().After(g.GetLastTime().AsTime()) || g.GetFingerprint() == "" ||
				g.GetNewestId() != g.GetCronId() {
				t.Errorf("%v", g)
			}
			list = append(list, fmt.Sprintf("%d %s %s %s", g.GetCount(), g.GetCronId(), g.GetReason(), g.GetMessage()))
		}
		failing, _, err := n.List(ctx, &progressorv1.ListCronsRequest{Namespace: "ns", Filter: "failing = true"})
		overview, also := n.GetOverview(ctx, "", 0)
		if err != nil || also != nil || len(failing) != len(list) ||
			overview.GetFailingCrons() != int64(len(list)) ||
			overview.GetNamespaces()[0].GetFailingCrons() != int64(len(list)) {
			t.Errorf("%d crons are failing, the filter finds %d, %v, %v", len(list), len(failing), overview, err)
		}
		return fmt.Sprintf("%q", list)
	}
	same := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	same(seen(), `[]`)
	run("good", progressorv1.FireStatus_FIRE_STATUS_SUCCESS)
	run("bad", progressorv1.FireStatus_FIRE_STATUS_FAILED)
	run("bad", progressorv1.FireStatus_FIRE_STATUS_FAILED)
	run("late", progressorv1.FireStatus_FIRE_STATUS_TIMEOUT)
	same(seen(), `["2 bad failed as asked" "1 late timeout too long"]`)
	corrected := &progressorv1.UpdateCronRequest{Cron: starts("bad", never, "complete")}
	if _, err := n.Update(ctx, corrected, kim); err != nil {
		t.Fatal(err)
	}
	run("bad", progressorv1.FireStatus_FIRE_STATUS_SUCCESS)
	same(seen(), `["1 late timeout too long"]`)
}
