package bulk_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// slowRepairs is a processor whose REPAIR tasks wait until ended is closed, except those of
// processes named "quick-…". The repairs of processes named "broken-…" then fail.
func slowRepairs(ended chan struct{}) processor.Func {
	return func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		id := r.GetProcess().GetProcessId()
		if r.GetType() != progressorv1.TaskType_TASK_TYPE_REPAIR || strings.HasPrefix(id, "quick-") {
			return obey(ctx, r)
		}
		select {
		case <-ended:
		case <-ctx.Done():
		}
		if strings.HasPrefix(id, "broken-") {
			return nil, processor.Fail("broken", "as always")
		}
		return processor.Result().Complete().Done()
	}
}

// If a repair does not end within a page, the bulk counts the outcome after the repair has ended.
// The bulk does not repeat the repair, and counts the process even though it no longer matches the
// filter.
func TestSlowRepairs(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	n := startServing(t, storagetest.DSN(t), slowRepairs(ended), nil)
	n.startAll(t, "fail", append(ids("p", 3), ids("broken", 2)...)...)
	b := n.begun(t, request(progressorv1.BulkVerb_BULK_VERB_REPAIR, "status = ERROR"))
	eventually(t, "all repairs have begun", func() bool { return n.get(t, b.GetBulkId()).GetMatched() == 5 })
	if b = n.get(t, b.GetBulkId()); b.GetDone() != 0 || b.GetFailed() != 0 || b.GetFinishedTime() != nil {
		t.Errorf("before the repairs have ended: %v", b)
	}
	close(ended)
	b = n.ended(t, b)
	if b.GetDone() != 3 || b.GetFailed() != 2 || b.GetSkipped() != 0 ||
		!strings.Contains(b.GetFailures()[0].GetError(), "as always") {
		t.Errorf("%v", b)
	}
	if got := n.Count(t, "SELECT count(*) FROM tasks WHERE task_type = 'REPAIR'"); got != 5 {
		t.Errorf("%d repairs", got)
	}
}

// A bulk waits only a limited time for a repair. Then it counts the repair as failed, although the
// repair continues.
func TestRepairThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	defer close(ended)
	n := startServing(t, storagetest.DSN(t), slowRepairs(ended), nil, (*bulks).PollTwice)
	n.startAll(t, "fail", "p", "quick-1")
	r := request(progressorv1.BulkVerb_BULK_VERB_REPAIR, "status = ERROR")
	r.Args = []byte("complete")
	b := n.ended(t, n.begun(t, r))
	if b.GetDone() != 1 || b.GetFailed() != 1 || !strings.Contains(b.GetFailures()[0].GetError(), "continues") {
		t.Errorf("%v", b)
	}
}

// While slow repairs run, a bulk repairs further processes without a pause, even if its rate allows
// only one process per page.
func TestNoPauseForSlowRepairs(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	defer close(ended)
	n := startServing(t, storagetest.DSN(t), slowRepairs(ended), nil, (*bulks).EndEarly, (*bulks).NeverRetry)
	n.startAll(t, "fail", "p")
	n.startAll(t, "fail", ids("quick", 4)...)
	r := request(progressorv1.BulkVerb_BULK_VERB_REPAIR, "status = ERROR")
	r.Args, r.Rate = []byte("complete"), 100
	b := n.begun(t, r)
	eventually(t, "the others are repaired", func() bool { return n.get(t, b.GetBulkId()).GetDone() == 4 })
}

// The args of repairs are stored neither in the metadata of the bulk nor in the audit, which
// clients without payload.read can read. A bulk of an old version, which has the args in its
// metadata, still runs.
func TestArgsAreHidden(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	for _, old := range []bool{false, true} {
		id := fmt.Sprint("p-", old)
		n.startAll(t, "fail", id)
		if _, err := n.SetNamespacePaused(t.Context(), "ns", true); err != nil {
			t.Fatal(err)
		}
		r := request(progressorv1.BulkVerb_BULK_VERB_REPAIR, "process_id = "+id)
		r.Args, r.IdempotencyKey = []byte("complete"), id
		b := n.begun(t, r)
		if b.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_INIT || string(b.GetArgs()) != "complete" {
			t.Errorf("started: %v", b)
		}
		hidden := base64.StdEncoding.EncodeToString(r.GetArgs())
		if got := n.Count(t, "SELECT (SELECT count(*) FROM processes WHERE metadata::text ~ $1) + "+
			"(SELECT count(*) FROM audit WHERE details::text ~ $1)", "complete|"+hidden); got != 0 {
			t.Errorf("the metadata or the audit has the args")
		}
		if old {
			storagetest.Exec(t, n.DB, `UPDATE processes SET metadata = metadata - 'args_in_init' ||
				jsonb_build_object('args', $2::text) WHERE process_id = $1`, "~bulk/"+b.GetBulkId(), hidden)
		}
		storagetest.Exec(t, n.DB, "DELETE FROM requests")
		if again, err := n.Start(t.Context(), r, kim); err != nil || again.GetBulkId() != b.GetBulkId() {
			t.Errorf("the same request: %v, %v", again, err)
		}
		r.Args = []byte("fail")
		if _, err := n.Start(t.Context(), r, kim); !errors.Is(err, process.ErrIdempotencyMismatch) {
			t.Errorf("other args: %v", err)
		}
		if _, err := n.SetNamespacePaused(t.Context(), "ns", false); err != nil {
			t.Fatal(err)
		}
		if b = n.ended(t, b); b.GetDone() != 1 || string(b.GetArgs()) != "complete" {
			t.Errorf("old form: %t: %v", old, b)
		}
	}
}
