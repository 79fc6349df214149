package client_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// link is the state of a process after N operations. Hash covers all of them.
type link struct {
	N    int
	Hash [sha256.Size]byte
	Op   string // the last operation
}

func (l link) add(op string) link {
	return link{N: l.N + 1, Hash: sha256.Sum256(append(l.Hash[:], op...)), Op: op}
}

// chain is a processor whose state is a hash chain. It appends the args of each task to the chain,
// and responds with the new link.
func chain(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	var last link
	if state := r.GetProcess().GetAuxState(); len(state) > 0 {
		if err := json.Unmarshal(state, &last); err != nil {
			return nil, processor.Fail("bad_state", "%w", err)
		}
	}
	text, err := json.Marshal(last.add(string(r.GetArgs())))
	if err != nil {
		return nil, err
	}
	return processor.Result().Event(r.GetArgs()).AuxState(text).Response(text).Done()
}

// steal polls until it has taken maximum leases, or ctx is done. It returns the number of leases.
// Like a worker that dies, it never ends these leases, so the engine gives their tasks to other
// workers.
func (h *testEngine) steal(ctx context.Context, maximum int) (stolen int) {
	for stolen < maximum && ctx.Err() == nil {
		resp, _ := h.client.Worker.Poll(ctx, &progressorv1.PollRequest{ // fails only at the end of the test
			Namespaces: []string{"pull"}, WorkerId: "thief", MaxLeases: 1, Wait: durationpb.New(time.Second),
			LeaseDuration: durationpb.New(time.Second),
		})
		stolen += len(resp.GetLeases())
	}
	return stolen
}

// While workers of a pull namespace start, stop and die, each call is applied exactly once. The
// responses of each process, and its final state, are consistent with one order of its calls.
func TestChainOverWorkers(t *testing.T) {
	h := newTestEngine(t)
	const processes, callers, calls = 3, 4, 15
	serve := func(w *client.Worker) { w.HandleProcesses(processor.Func(chain)) }
	h.worker(h.client, serve)
	stopping := h.worker(h.client, serve)
	stolen := 0 // at most two, because a task has three attempts
	ctx, stop := context.WithCancel(t.Context())
	var thief, all sync.WaitGroup
	thief.Go(func() { stolen = h.steal(ctx, 2) })
	t.Cleanup(thief.Wait)
	t.Cleanup(stop)
	var mu sync.Mutex
	answers := map[string]map[int]link{} // answers by process and number
	for p := range processes {
		id := fmt.Sprint("chain-", p)
		mu.Lock()
		answers[id] = map[int]link{}
		mu.Unlock()
		if _, err := h.client.Start(t.Context(),
			&progressorv1.StartRequest{Namespace: "pull", ProcessId: id, Args: []byte("born")}); err != nil {
			t.Fatal(err)
		}
		for c := range callers {
			all.Go(func() {
				for n := range calls {
					op := fmt.Sprintf("%d/%d", c, n)
					resp, err := h.client.Call(t.Context(),
						&progressorv1.CallRequest{Namespace: "pull", ProcessId: id, Args: []byte(op)})
					var l link
					if err = errors.Join(err, json.Unmarshal(resp.GetResponse(), &l)); err != nil || l.Op != op {
						t.Errorf("%s %s: answered %s, %v", id, op, resp.GetResponse(), err)
						return
					}
					mu.Lock()
					if other, twice := answers[id][l.N]; twice {
						t.Errorf("%s: %s and %s are both number %d", id, other.Op, op, l.N)
					}
					answers[id][l.N] = l
					mu.Unlock()
					if c == 0 && n == calls/2 && p == 0 {
						stopping.stop() // releases its leases
						h.worker(h.client, serve)
					}
				}
			})
		}
	}
	all.Wait()
	stop()
	thief.Wait()
	for id, known := range answers {
		want := link{}.add("born")
		for n := 2; n <= callers*calls+1; n++ {
			if want = want.add(known[n].Op); want != known[n] {
				t.Fatalf("%s: number %d is %v, but the operations before it result in %v", id, n, known[n], want)
			}
		}
		resp, err := h.client.Process.GetProcess(t.Context(),
			&progressorv1.GetProcessRequest{Namespace: "pull", ProcessId: id})
		if err != nil {
			t.Fatal(err)
		}
		var last link
		if err := json.Unmarshal(resp.GetProcess().GetAuxState(), &last); err != nil || last != want ||
			len(resp.GetProcess().GetHistory()) != want.N {
			t.Errorf("%s ends as %v with %d events, want %v", id, last, len(resp.GetProcess().GetHistory()), want)
		}
	}
	if stolen == 0 {
		t.Error("the thief got no lease")
	}
}
