package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A slot is occupied while its task is processed and while the result is stored. As long as slots
// are occupied longer for storing than for processing, a request that gets no slot is rejected at
// once or after about 100 ms, and nothing is stored.
func TestOverloadOfTheDatabase(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	reg := newRegistry()
	n := start(t, dsn, byTask{}, reg.use)
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1})
	free := n.Storing("ns", time.Hour)
	began := time.Now()
	refused := make(chan error, 1)
	go func() {
		_, err := n.Start(t.Context(), engine.StartParams{Key: key("waits")})
		refused <- err
	}()
	eventually(t, "a request waits for a slot", func() bool { _, waiting := n.Slots("ns"); return waiting == 1 })
	now := time.Now()
	_, err := n.Start(t.Context(), engine.StartParams{Key: key("refused at once")})
	if took := time.Since(now); !errors.Is(err, process.ErrOverloaded) || took > 80*time.Millisecond {
		t.Errorf("after %s: %v", took, err)
	}
	err = receive(t, "the rejection", refused)
	if took := time.Since(began); !errors.Is(err, process.ErrOverloaded) || took < 100*time.Millisecond ||
		took > time.Second {
		t.Errorf("after %s: %v", took, err)
	}
	if reg.value(t, "progressor_requests_refused_total", "bound=place") != 2 {
		t.Error("the rejections were not counted")
	}
	if got := openDB(t, dsn).count(t, "SELECT count(*) FROM processes"); got != 0 {
		t.Errorf("%d processes were stored", got)
	}
	free()
	n.started(t, "p")
}

// As long as slots are occupied longer for storing than for processing, a call that gets no slot is
// also rejected if this node runs a task of its process. The call is not stored behind that task.
func TestOverloadWithABusyProcess(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	n := start(t, dsn, byTask{callTask: g.held(true)})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 3})
	n.started(t, "p")
	running := n.calling("p", "1")
	receive(t, "the first call runs", g.entered)
	free := []func(){n.Storing("ns", time.Hour), n.Storing("ns", time.Hour)}
	if res := receive(t, "the rejection", n.calling("p", "2")); !errors.Is(res.err, process.ErrOverloaded) {
		t.Errorf("%v", res.err)
	}
	for _, f := range free {
		f()
	}
	behind := n.calling("p", "3")
	g.release()
	for _, c := range []<-chan result{running, behind} {
		if res := receive(t, "call", c); res.err != nil {
			t.Error(res.err)
		}
	}
	if got := openDB(t, dsn).count(t, "SELECT count(*) FROM tasks WHERE task_type = 'CALL'"); got != 2 {
		t.Errorf("%d calls were stored", got)
	}
}

// The time that a call waits in memory for its process does not count as time for storing. If it
// did, calls of one slow process would look like an overload of the database.
func TestWaitInMemoryIsNotStoring(t *testing.T) {
	t.Parallel()
	storagetest.NeedsFastPath(t)
	const wait = 60 * time.Millisecond // less than the maximum wait of a call in memory
	entered, proceed := make(chan struct{}), make(chan struct{})
	n := start(t, storagetest.DSN(t), byTask{callTask: func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		entered <- struct{}{}
		<-proceed
		return processor.Echo().Process(ctx, r)
	}})
	n.started(t, "p")
	for range 20 { // on a busy machine, storing alone may take that long
		before := n.StoringTime("ns")
		first := n.calling("p", "1")
		receive(t, "the first call runs", entered)
		began, second := time.Now(), n.calling("p", "2")
		eventually(t, "the second call has waited", func() bool {
			taken, _ := n.Slots("ns")
			return taken == 2 && time.Since(began) > wait
		})
		proceed <- struct{}{}
		receive(t, "the second call runs", entered)
		proceed <- struct{}{}
		for _, c := range []<-chan result{first, second} {
			if res := receive(t, "call", c); res.err != nil {
				t.Fatal(res.err)
			}
		}
		if n.StoringTime("ns")-before < wait {
			return
		}
	}
	t.Errorf("the wait of %s counts as storing", wait)
}
