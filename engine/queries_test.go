package engine_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// 1,000 clients on one node wait for calls that another node runs. While they wait, the node makes
// at most 20 queries per second. Each client gets its response.
func TestManyWaitersFewQueries(t *testing.T) {
	t.Parallel()
	const clients = 1000
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	runs := start(t, dsn, byTask{initTask: g.held(true)})
	line, slow := through(t, dsn)
	waits := start(t, slow, processor.Echo())
	var ends []time.Time
	var mu sync.Mutex
	var group sync.WaitGroup
	for n := range clients {
		ans, err := runs.Start(t.Context(), engine.StartParams{
			Key: key(fmt.Sprint("p", n)), Args: []byte("a"), Accepted: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			task, err := waits.AwaitTask(t.Context(), engine.AwaitParams{
				Key: key(ans.ProcessID), TaskID: ans.TaskID, Timeout: time.Minute,
			})
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, time.Now())
			if err != nil || string(task.GetResponse()) != "a" {
				t.Errorf("%v, %v", task, err)
			}
		})
	}
	eventually(t, "all wait", func() bool { return waits.Waiting() == clients && runs.Attempts() == clients })
	if rate := line.rate(time.Second); rate > 20+messagePolls() {
		t.Errorf("%.1f queries per second by a node with %d waiting clients", rate, clients)
	} else {
		t.Logf("%.1f queries per second", rate)
	}
	opened := time.Now()
	g.release()
	group.Wait()
	slices.SortFunc(ends, time.Time.Compare)
	t.Logf("answered: the first after %s, half after %s, all after %s", ends[0].Sub(opened),
		ends[clients/2].Sub(opened), ends[clients-1].Sub(opened))
}

// The response of a task that runs on another node arrives within 300 ms at the median.
func TestAnswerFromElsewhereIsQuick(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	a := start(t, dsn, byTask{initTask: g.held(true)})
	b := start(t, dsn, byTask{initTask: g.held(true)})
	var late []time.Duration
	for n := range 15 {
		ended := make(chan time.Time, 1)
		one := make(chan struct{})
		id := fmt.Sprint("p", n)
		ans, err := a.Start(t.Context(), engine.StartParams{Key: key(id), Accepted: true})
		if err != nil {
			t.Fatal(err)
		}
		receive(t, "the call runs", g.entered)
		go func() {
			defer close(one)
			if _, err := b.AwaitTask(t.Context(), engine.AwaitParams{
				Key: key(id), TaskID: ans.TaskID, Timeout: time.Minute,
			}); err != nil {
				t.Error(err)
			}
			ended <- time.Now()
		}()
		eventually(t, "b waits", func() bool { return b.Waiting() == 1 })
		began := time.Now()
		g.open <- struct{}{}
		<-one
		late = append(late, (<-ended).Sub(began))
	}
	slices.Sort(late)
	// A busy machine needs more than 100 ms.
	if median := late[len(late)/2]; median > 300*time.Millisecond {
		t.Errorf("the median response takes %s: %v", median, late)
	}
}

// messagePolls returns how often per second a node looks for messages of SQL functions.
func messagePolls() float64 {
	if storagetest.AllPortable() {
		return 5
	}
	return 0
}

// An idle node with ten namespaces makes at most 6 queries per second.
func TestIdleQueries(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	line, slow := through(t, dsn)
	n := start(t, slow, processor.Echo())
	for k := range 10 {
		n.put(t, &progressorv1.Namespace{Namespace: fmt.Sprint("ns", k)})
	}
	n.started(t, "p")
	n.called(t, "p", "x")
	eventually(t, "no client waits", func() bool { return n.Waiting() == 0 })
	pass(200 * time.Millisecond) // lets work that the calls have caused end
	if rate := line.rate(4 * time.Second); rate > 6+messagePolls() {
		t.Errorf("%.1f queries per second by an idle node", rate)
	} else {
		t.Logf("%.1f queries per second", rate)
	}
}
