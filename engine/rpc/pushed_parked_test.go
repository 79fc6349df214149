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
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

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
			p, a := newPushing(t), enginetest.NewAdder()
			p.serve(a, func(ns *progressorv1.Namespace) {
				c := ns.GetProcessor().GetConnect()
				c.Protocol, c.Encoding = connect.GetProtocol(), connect.GetEncoding()
			}, processor.WithParking(), processor.WithCheckpoints(p.other))
			p.start()
			for total := range 3 {
				p.adds(1, total+1)
			}
			a.WantTasks(t, 6, 0)
		})
	}
}

// If the program no longer has the function in its memory, or ignores parked_id, it gets the
// history.
func TestPushedFunctionInMemoryIsLost(t *testing.T) {
	t.Parallel()
	a := enginetest.NewAdder()
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
			a.Begun.Store(0)
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
			if a.Begun.Load() < 2 {
				t.Errorf("the function has begun %d times", a.Begun.Load())
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

// The engine sends a task to the program that has the function in its memory, and to another
// program if that one cannot be reached.
func TestPushedFunctionInMemoryOfOneProgram(t *testing.T) {
	t.Parallel()
	p, a, b := newPushing(t), enginetest.NewAdder(), enginetest.NewAdder()
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
	if a.Begun.Load() == 0 {
		first, second = b, a
	}
	first.WantTasks(t, 8, 0)
	first.Down.Store(true)
	p.adds(1, 5)
	second.WantTasks(t, 2, 1)
}

// After a response that the engine does not store, or that is not a result, the function is not
// continued in memory.
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
			p, a := newPushing(t), enginetest.NewAdder()
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
			a.WantTasks(t, 5, 1)
		})
	}
}

// A task for which the processor needs the history gets it, even if the function is in memory.
func TestPushedFunctionInMemoryIsCancelled(t *testing.T) {
	t.Parallel()
	p, a := newPushing(t), enginetest.NewAdder()
	p.serve(a, unchanged, processor.WithParking())
	p.start()
	p.adds(1, 1)
	if _, err := p.here.Process.CancelProcess(t.Context(), &progressorv1.CancelProcessRequest{
		Namespace: "pushed", ProcessId: "p"}); err != nil {
		t.Fatal(err)
	}
	p.ended(progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED)
	a.WantTasks(t, 3, 1)
}
