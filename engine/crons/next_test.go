package crons_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// The crons that fire next are listed in the order of their fire times, for one namespace or for
// all namespaces that are not paused. A timer that is the deadline of a run does not change the
// order. A paused cron is not listed, even if it has such a timer.
func TestListNext(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	ctx := t.Context()
	for _, name := range []string{"other", "still"} {
		n.Put(t, &progressorv1.Namespace{Namespace: name})
	}
	create := func(namespace, id string, year int, policy *progressorv1.CronPolicy) {
		t.Helper()
		c := starts(id, never, "wait")
		c.Namespace, c.Spec.StartTime = namespace, stamp(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
		c.Policy = policy
		n.create(t, c)
		if policy.GetTimeout() == nil {
			return
		}
		run := &progressorv1.TriggerCronRequest{Namespace: namespace, CronId: id}
		if _, err := n.Trigger(ctx, run, kim); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the deadline of its run is its timer", func() bool {
			return n.Count(t, `SELECT count(*) FROM schedule WHERE process_id = '~cron/' || $1
				AND scheduled_time < now() + interval '2 hours'`, id) == 1
		})
	}
	withDeadline := &progressorv1.CronPolicy{Timeout: durationpb.New(time.Hour)}
	create("ns", "late", 2042, nil)
	create("ns", "soon", 2040, nil)
	create("other", "between", 2041, nil)
	create("still", "first", 2039, nil)
	create("ns", "busy", 2043, withDeadline)
	create("ns", "paused", 2038, withDeadline)
	if _, err := n.Pause(ctx, &progressorv1.PauseCronRequest{Namespace: "ns", CronId: "paused"}, kim); err != nil {
		t.Fatal(err)
	}
	if _, err := n.SetNamespacePaused(ctx, "still", true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node sees the pause", func() bool { return n.IsPaused("still") })
	for _, tt := range []struct {
		namespace string
		size      int32
		want      string
	}{
		{"", 0, "ns/soon other/between ns/late ns/busy"},
		{"", 2, "ns/soon other/between"},
		{"ns", 0, "ns/soon ns/late ns/busy"},
		{"still", 0, "still/first"},
	} {
		list, err := n.ListNext(ctx, &progressorv1.ListNextCronsRequest{Namespace: tt.namespace, PageSize: tt.size})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range list {
			got = append(got, c.GetNamespace()+"/"+c.GetCronId())
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q, %d: got %v, want %s", tt.namespace, tt.size, got, tt.want)
		}
	}
	if _, err := n.ListNext(ctx, &progressorv1.ListNextCronsRequest{Namespace: "nowhere"}); !errors.Is(err,
		process.ErrNamespaceNotFound) {
		t.Errorf("a namespace that does not exist: %v", err)
	}
}
