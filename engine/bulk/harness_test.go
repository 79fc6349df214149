package bulk_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/bulk"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// testTimeout is how long a test waits for an event that should come soon. It is long because the
// machine may be busy.
const testTimeout = time.Minute

// eventually waits until cond returns true.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	enginetest.Eventually(t, testTimeout, what, cond)
}

// kim is the operator.
var kim = process.Actor{Name: "kim", Source: "10.0.0.7:4711"}

// node is an engine of a test that runs bulks.
type node struct {
	*enginetest.Node
	*bulk.Bulks
}

// start runs an engine with the namespace "ns", whose processor echoes, fails for the args "fail"
// and completes for "complete".
func start(t testing.TB, dsn string, change ...func(*bulk.Bulks)) *node {
	t.Helper()
	return startWith(t, dsn, nil, change...)
}

// startWith does what start does, with targets.
func startWith(t testing.TB, dsn string, targets []bulk.Target, change ...func(*bulk.Bulks)) *node {
	t.Helper()
	return startServing(t, dsn, obey, targets, change...)
}

// startServing does what startWith does, with a processor.
func startServing(
	t testing.TB, dsn string, p processor.Func, targets []bulk.Target, change ...func(*bulk.Bulks),
) *node {
	t.Helper()
	n := &node{}
	n.Node = enginetest.Start(t, dsn, p, enginetest.Add(func(e *enginetest.Node) []engine.Kind {
		n.Bulks = bulk.New(e.Engine, targets...)
		for _, f := range change {
			f(n.Bulks)
		}
		return []engine.Kind{n.Kind()}
	}))
	return n
}

func obey(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	switch string(r.GetArgs()) {
	case "fail":
		return nil, processor.Fail("broken", "as asked")
	case "complete":
		return processor.Result().Complete().Done()
	}
	return processor.Result().Done()
}

func key(id string) process.Key { return process.Key{Namespace: "ns", ProcessID: id} }

// startAll starts processes concurrently.
func (n *node) startAll(t testing.TB, args string, ids ...string) {
	t.Helper()
	var group sync.WaitGroup
	places := make(chan struct{}, 100)
	for _, id := range ids {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			_, err := n.Engine.Start(context.Background(),
				engine.StartParams{Key: key(id), Args: []byte(args), Timeout: testTimeout})
			if err != nil && args != "fail" {
				t.Errorf("start %s: %v", id, err)
			}
		})
	}
	group.Wait()
}

// ids returns prefix-00001, …
func ids(prefix string, n int) []string {
	list := make([]string, n)
	for k := range list {
		list[k] = fmt.Sprintf("%s-%05d", prefix, k+1)
	}
	return list
}

// request returns a request to apply a verb to the processes that match.
func request(verb progressorv1.BulkVerb, filter string) *progressorv1.StartBulkRequest {
	return &progressorv1.StartBulkRequest{Namespace: "ns", Verb: verb, Filter: filter, Rate: 10_000, Reason: "a test"}
}

func (n *node) begun(t testing.TB, r *progressorv1.StartBulkRequest) *progressorv1.Bulk {
	t.Helper()
	b, err := n.Start(context.Background(), r, kim)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (n *node) get(t testing.TB, id string) *progressorv1.Bulk {
	t.Helper()
	b, err := n.Get(context.Background(), "ns", id)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ended waits for the end of a bulk.
func (n *node) ended(t testing.TB, b *progressorv1.Bulk) *progressorv1.Bulk {
	t.Helper()
	eventually(t, "the bulk has ended", func() bool {
		b = n.get(t, b.GetBulkId())
		return b.GetFinishedTime() != nil
	})
	if b.GetStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED &&
		b.GetMatched() != b.GetDone()+b.GetFailed()+b.GetSkipped() {
		t.Errorf("the numbers do not add up: %v", b)
	}
	return b
}

// statuses counts the plain processes by status.
func (n *node) statuses(t testing.TB) string {
	t.Helper()
	return strings.Join(enginetest.Texts(t, n.DB, `SELECT status || ' ' || count(*) FROM processes
		WHERE kind = '' AND removed_time IS NULL GROUP BY status ORDER BY status::text`), ", ")
}
