package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// adder is a program with a durable function that adds the args of calls and publishes the total.
type adder struct {
	processor.Processor
	begun    atomic.Int32 // how often the code of the function has begun
	parked   atomic.Int32 // requests with a parked_id
	complete atomic.Int32 // requests with a history
	down     atomic.Bool  // the program is unavailable
}

func newAdder() *adder {
	a := &adder{}
	a.Processor = durable.Func("add", func(ctx durable.Ctx, _ struct{}) (int, error) {
		a.begun.Add(1)
		calls := durable.Calls[int, int](ctx, "add")
		total := 0
		for {
			total += calls.Next()
			durable.Sleep(ctx, "pause", time.Millisecond)
			durable.Publish(ctx, total)
		}
	})
	return a
}

// Process counts the requests.
func (a *adder) Process(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	if a.down.Load() {
		return nil, &processor.UnreachableError{Err: errors.New("down")}
	}
	if r.GetParkedId() != "" {
		a.parked.Add(1)
	}
	if len(r.GetProcess().GetHistory()) > 0 {
		a.complete.Add(1)
	}
	return a.Processor.Process(ctx, r)
}

// wantTasks checks how many tasks the program continued in memory or with a history, and that each
// history was needed for a replay. Another task may get a history too, if it runs so soon after the
// result before it that the engine does not know yet where the process is in memory.
func (a *adder) wantTasks(t *testing.T, tasks, histories int32) {
	t.Helper()
	parked, complete, begun := a.parked.Load(), a.complete.Load(), a.begun.Load()
	if parked+complete != tasks || complete < histories || complete > histories+1 || begun < complete ||
		begun > complete+1 {
		t.Errorf("%d tasks ran in memory and %d with the history, and the function has begun %d times; "+
			"want %d tasks and %d histories", parked, complete, begun, tasks, histories)
	}
}

// adds calls the function and waits until it has published the total.
func (p *pushing) adds(amount, total int) {
	p.t.Helper()
	if _, err := p.here.Process.Call(p.t.Context(), &progressorv1.CallRequest{
		Namespace: "pushed", ProcessId: "p", Args: fmt.Appendf(nil, `{"add":%d}`, amount)}); err != nil {
		p.t.Fatal(err)
	}
	enginetest.Eventually(p.t, time.Minute, "the total is published", func() bool {
		resp, err := p.here.Process.GetProcess(p.t.Context(),
			&progressorv1.GetProcessRequest{Namespace: "pushed", ProcessId: "p"})
		return err == nil && string(resp.GetProcess().GetAuxState()) == fmt.Sprint(total)
	})
}

// A pushed function that waits stays in the memory of its program. The engine then sends no
// history.
func TestPushedFunctionInMemory(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]*progressorv1.ConnectProcessor{
		"proto":   {},
		"json":    {Encoding: progressorv1.ConnectProcessor_ENCODING_JSON},
		"msgpack": {Encoding: progressorv1.ConnectProcessor_ENCODING_MSGPACK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, a := newPushing(t), newAdder()
			p.serve(a, func(ns *progressorv1.Namespace) {
				c := ns.GetProcessor().GetConnect()
				c.Protocol, c.Encoding = connect.GetProtocol(), connect.GetEncoding()
			}, processor.WithParking(), processor.WithCheckpoints(p.other))
			p.start()
			for total := range 3 {
				p.adds(1, total+1)
			}
			a.wantTasks(t, 6, 0)
		})
	}
}

// If the program no longer has the function in its memory, or ignores parked_id, it gets the
// history.
func TestPushedFunctionInMemoryIsLost(t *testing.T) {
	t.Parallel()
	a := newAdder()
	ignores := processor.Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		r.ParkedId = "" // so that Handler does not answer
		return a.Process(ctx, r)
	})
	refuses := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "parkedId") {
			http.Error(w, "unknown field", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		processor.Handler(a).ServeHTTP(w, r)
	})
	for name, next := range map[string]http.Handler{
		"restarted":       processor.Handler(a, processor.WithParking()),
		"without parking": processor.Handler(a),
		"ignores it":      plain(ignores),
		"refuses it":      refuses,
	} {
		p := newPushing(t)
		t.Run(name, func(t *testing.T) {
			a.begun.Store(0)
			var program atomic.Pointer[http.Handler]
			first := processor.Handler(a, processor.WithParking())
			program.Store(&first)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				(*program.Load()).ServeHTTP(w, r)
			}))
			defer server.Close()
			p.serve(a, func(ns *progressorv1.Namespace) {
				once(ns)
				c := ns.GetProcessor().GetConnect()
				c.Url, c.Encoding, c.Checkpoints = server.URL, progressorv1.ConnectProcessor_ENCODING_JSON, false
			})
			p.start()
			p.adds(1, 1)
			program.Store(&next)
			p.adds(1, 2)
			if a.begun.Load() < 2 {
				t.Errorf("the function has begun %d times", a.begun.Load())
			}
		})
	}
}

// plain serves a processor that does not know parked_id.
func plain(p processor.Processor) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		req := &progressorv1.ProcessRequest{}
		if err == nil {
			err = protojson.Unmarshal(body, req)
		}
		resp, processErr := processor.Guard(p, nil).Process(r.Context(), req)
		text, encodeErr := protojson.Marshal(resp)
		if err = errors.Join(err, processErr, encodeErr); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	})
}

// The engine sends a task to the program that has the function in its memory, and to another one if
// it cannot be reached.
func TestPushedFunctionInMemoryOfOneProgram(t *testing.T) {
	t.Parallel()
	p, a, b := newPushing(t), newAdder(), newAdder()
	other := httptest.NewServer(processor.Handler(b, processor.WithParking()))
	t.Cleanup(other.Close)
	p.serve(a, func(ns *progressorv1.Namespace) {
		once(ns) // the task is sent to the other program in the same attempt
		ns.GetProcessor().GetConnect().MoreUrls = []string{other.URL}
	}, processor.WithParking())
	p.start()
	for total := range 4 {
		p.adds(1, total+1)
	}
	first, second := a, b
	if a.begun.Load() == 0 {
		first, second = b, a
	}
	first.wantTasks(t, 8, 0)
	first.down.Store(true)
	p.adds(1, 5)
	second.wantTasks(t, 2, 1)
}

// A response that the engine does not store, or that is not a result, is not continued in memory.
func TestPushedFunctionInMemoryIsNotStored(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*progressorv1.ProcessResponse){
		"an invalid result": func(r *progressorv1.ProcessResponse) { r.GetResult().UnsetNamedTimers = []string{""} },
		"a failure": func(r *progressorv1.ProcessResponse) {
			r.Outcome = &progressorv1.ProcessResponse_Failure{Failure: &progressorv1.Failure{Reason: "x"}}
		},
		"a long ID": func(r *progressorv1.ProcessResponse) { r.ParkedId = fmt.Sprintf("%0300d", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, a := newPushing(t), newAdder()
			parking := processor.NewParking()
			var timeouts atomic.Int32
			server := httptest.NewServer(plain(processor.Func(func(
				ctx context.Context, r *progressorv1.ProcessRequest,
			) (*progressorv1.ProcessResponse, error) {
				resp, err := parking.Process(ctx, a, r)
				if r.GetType() == progressorv1.TaskType_TASK_TYPE_TIMEOUT && timeouts.Add(1) == 1 {
					change(resp)
				}
				return resp, err
			})))
			t.Cleanup(server.Close)
			p.serve(a, func(ns *progressorv1.Namespace) {
				c := ns.GetProcessor().GetConnect()
				c.Url, c.Encoding, c.Checkpoints = server.URL, progressorv1.ConnectProcessor_ENCODING_JSON, false
			})
			p.start()
			p.adds(1, 1)
			p.adds(1, 2)
			a.wantTasks(t, 5, 1)
		})
	}
}

// A task for which the processor needs the history gets it, even if the function is in memory.
func TestPushedFunctionInMemoryIsCancelled(t *testing.T) {
	t.Parallel()
	p, a := newPushing(t), newAdder()
	p.serve(a, unchanged, processor.WithParking())
	p.start()
	p.adds(1, 1)
	if _, err := p.here.Process.CancelProcess(t.Context(), &progressorv1.CancelProcessRequest{
		Namespace: "pushed", ProcessId: "p"}); err != nil {
		t.Fatal(err)
	}
	p.ended(progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED)
	a.wantTasks(t, 3, 1)
}
