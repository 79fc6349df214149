package rpc

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// pushing has two nodes. One of them pushes the tasks of the namespace "pushed" to a processor, and
// the other one runs no tasks.
type pushing struct {
	t           *testing.T
	dsn         string
	here, other *client.Client // clients of the node that pushes, and of the other one
}

func newPushing(t *testing.T) *pushing {
	t.Helper()
	dsn := storagetest.DSN(t)
	here := newServedNode(t, dsn, func(*engine.Config) {})
	other := newServedNode(t, dsn, func(c *engine.Config) { c.RequestsOnly = true })
	return &pushing{t, dsn, client.New(here.url), client.New(other.url)}
}

// serve serves the processor f and puts the namespace "pushed". change may change the namespace
// before that.
func (p *pushing) serve(f processor.Processor, change func(*progressorv1.Namespace), opts ...processor.Option) {
	p.t.Helper()
	server := httptest.NewServer(processor.Handler(f, opts...))
	p.t.Cleanup(server.Close)
	ns := &progressorv1.Namespace{
		Namespace: "pushed",
		Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Connect{
			Connect: &progressorv1.ConnectProcessor{Url: server.URL, Checkpoints: true},
		}},
		RetryPolicy: &progressorv1.RetryPolicy{InitialInterval: durationpb.New(20 * time.Millisecond), MaxAttempts: 3},
	}
	change(ns)
	if _, err := p.here.Namespace.PutNamespace(p.t.Context(),
		&progressorv1.PutNamespaceRequest{Namespace: ns}); err != nil {
		p.t.Fatal(err)
	}
}

func unchanged(*progressorv1.Namespace) {}

// once makes the task fail permanently at its first failure.
func once(ns *progressorv1.Namespace) { ns.RetryPolicy.MaxAttempts = 1 }

func (p *pushing) start() {
	p.t.Helper()
	if _, err := p.here.Process.Start(p.t.Context(), &progressorv1.StartRequest{
		Namespace: "pushed", ProcessId: "p", Args: []byte("{}")}); err != nil {
		p.t.Fatal(err)
	}
}

// ended waits until the process has the status, and returns the process and its history.
func (p *pushing) ended(status progressorv1.ProcessStatus) (row *progressorv1.Process, history string) {
	p.t.Helper()
	enginetest.Eventually(p.t, time.Minute, "the process is "+status.String(), func() bool {
		resp, err := p.here.Process.GetProcess(p.t.Context(),
			&progressorv1.GetProcessRequest{Namespace: "pushed", ProcessId: "p"})
		row = resp.GetProcess()
		return err == nil && row.GetStatus() == status
	})
	return row, payloadsOf(row)
}

func payloadsOf(p *progressorv1.Process) string {
	var texts []string
	for _, e := range p.GetHistory() {
		texts = append(texts, string(e.GetPayload()))
	}
	return strings.Join(texts, " ")
}

const (
	completed = progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED
	inError   = progressorv1.ProcessStatus_PROCESS_STATUS_ERROR
)

// A durable function to which the engine pushes tasks runs several steps in one task.
func TestPushedFunction(t *testing.T) {
	t.Parallel()
	for name, encoding := range map[string]progressorv1.ConnectProcessor_Encoding{
		"proto": progressorv1.ConnectProcessor_ENCODING_PROTO, "json": progressorv1.ConnectProcessor_ENCODING_JSON,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPushing(t)
			var ran atomic.Int32
			f := durable.Func("f", func(ctx durable.Ctx, _ struct{}) (int32, error) {
				for range 3 {
					if _, err := durable.Step(ctx, "step", func(context.Context) (int32, error) {
						return ran.Add(1), nil
					}); err != nil {
						return 0, err
					}
				}
				return ran.Load(), nil
			})
			p.serve(f, func(ns *progressorv1.Namespace) {
				ns.GetProcessor().GetConnect().Encoding = encoding
			}, processor.WithCheckpoints(p.other))
			p.start()
			_, history := p.ended(completed)
			if ran.Load() != 3 || !strings.Contains(history, `"v":3`) {
				t.Errorf("%d steps ran: %s", ran.Load(), history)
			}
			// Without checkpoints, each step and the end of the function would be separate tasks.
			if n := enginetest.Count(t, storagetest.Connect(t, p.dsn),
				"SELECT count(*) FROM tasks WHERE process_id = 'p'"); n != 2 {
				t.Errorf("%d tasks", n)
			}
		})
	}
}

// steps is a processor with one function for each attempt of a TIMEOUT task, in the order of the
// attempts.
type steps struct {
	t     *testing.T
	at    atomic.Int32
	tasks []func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error)
}

func (s *steps) Process(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	if r.GetType() != progressorv1.TaskType_TASK_TYPE_TIMEOUT {
		if r.GetCheckpointToken() != "" {
			s.t.Errorf("a %s has a checkpoint token", r.GetType())
		}
		return processor.Result().Event([]byte("init")).SetTimerAfter(0).Done()
	}
	return s.tasks[s.at.Add(1)-1](ctx, r)
}

// checkpoint stores one event after the event with the ID after.
func checkpoint(
	ctx context.Context, c *client.Client, token string, after int64, event string,
) (*progressorv1.CheckpointResponse, error) {
	return c.Worker.Checkpoint(ctx, &progressorv1.CheckpointRequest{
		LeaseToken: token, LastEventId: after, Events: []*progressorv1.NewEvent{{Payload: []byte(event)}},
		AuxState: []byte(event),
	})
}

func resultAfter(lastEventID int64, b *processor.ResultBuilder) (*progressorv1.ProcessResponse, error) {
	resp, err := b.Done()
	resp.LastEventId = lastEventID
	return resp, err
}

func wantTask(t *testing.T, r *progressorv1.ProcessRequest, history, state string) {
	t.Helper()
	if got := payloadsOf(r.GetProcess()); got != history || string(r.GetProcess().GetAuxState()) != state {
		t.Errorf("the task gets the events %q and the state %q, want %q and %q", got, r.GetProcess().GetAuxState(),
			history, state)
	}
}

// Any node can store the checkpoints of a pushed task. Each checkpoint is stored once, and the
// result follows the checkpoints. The next task gets their events, although the task is already in
// the memory of the node that pushes.
func TestPushedCheckpoint(t *testing.T) {
	t.Parallel()
	p := newPushing(t)
	f := &steps{t: t}
	for _, by := range []*client.Client{p.here, p.other} {
		f.tasks = append(f.tasks, func(
			ctx context.Context, r *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			last := r.GetProcess().GetLastEventId()
			for range 2 {
				made, err := checkpoint(ctx, by, r.GetCheckpointToken(), last, "a")
				if err != nil || made.GetLastEventId() != last+1 || made.GetYield() {
					t.Errorf("%v, %v", made, err)
				}
			}
			_, err := checkpoint(ctx, by, r.GetCheckpointToken(), last+5, "late")
			requireCode(t, err, connect.CodeInvalidArgument)
			return resultAfter(last+1, processor.Result().Event([]byte("b")).SetTimerAfter(0))
		})
	}
	f.tasks = append(f.tasks, func(
		_ context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		wantTask(t, r, "init a b a b", "a")
		return processor.Result().Complete().Done()
	})
	p.serve(f, unchanged)
	p.start()
	if _, history := p.ended(completed); history != "init a b a b" {
		t.Error(history)
	}
	if n := enginetest.Count(t, storagetest.Connect(t, p.dsn), "SELECT count(*) FROM failed_attempts"); n != 0 {
		t.Errorf("%d attempts failed", n)
	}
}

// A result with events that follows checkpoints is rejected if its last_event_id is missing or
// wrong, because the result could repeat events. The events of the checkpoints remain stored.
func TestPushedResultThatIgnoresCheckpoints(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last int64
		want string
	}{
		"none":        {0, "last_event_id: must be the last event of the process, which has more events"},
		"an old one":  {2, "last_event_id: must be 3, the last event of the process (got 2)"},
		"a later one": {7, "last_event_id: must be 3, the last event of the process (got 7)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPushing(t)
			p.serve(&steps{t: t, tasks: []func(
				context.Context, *progressorv1.ProcessRequest,
			) (*progressorv1.ProcessResponse, error){
				func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
					for after := int64(1); after <= 2; after++ {
						if _, err := checkpoint(ctx, p.other, r.GetCheckpointToken(), after, "a"); err != nil {
							t.Error(err)
						}
					}
					return resultAfter(c.last, processor.Result().Event([]byte("a")).SetTimerAfter(0))
				},
			}}, once)
			p.start()
			row, history := p.ended(inError)
			if history != "init a a" || !strings.Contains(row.GetDetail(), c.want) {
				t.Errorf("%s: %s, want %s", history, row.GetDetail(), c.want)
			}
		})
	}
}

// If a response does not report its checkpoints, the next task still gets their events.
func TestPushedCheckpointsWithoutReport(t *testing.T) {
	t.Parallel()
	p := newPushing(t)
	p.serve(&steps{t: t, tasks: []func(
		context.Context, *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error){
		func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if _, err := checkpoint(ctx, p.other, r.GetCheckpointToken(), 1, "a"); err != nil {
				t.Error(err)
			}
			return processor.Result().SetTimerAfter(0).Done()
		},
		func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			wantTask(t, r, "init a", "a")
			if _, err := checkpoint(ctx, p.other, r.GetCheckpointToken(), 2, "b"); err != nil {
				t.Error(err)
			}
			return nil, processor.Fail("x", "as the test wants").RetryAfter(0)
		},
		func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			wantTask(t, r, "init a b", "b")
			return processor.Result().Complete().Done()
		},
	}}, unchanged)
	p.start()
	if _, history := p.ended(completed); history != "init a b" {
		t.Error(history)
	}
}

// If an attempt is lost or times out after a checkpoint, the next attempt gets the events of the
// checkpoint, and the old token can store nothing more.
func TestPushedCheckpointOfLostAttempt(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(ctx context.Context){
		"lost":     func(context.Context) { panic(http.ErrAbortHandler) },
		"too late": func(ctx context.Context) { <-ctx.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPushing(t)
			var old string
			p.serve(&steps{t: t, tasks: []func(
				context.Context, *progressorv1.ProcessRequest,
			) (*progressorv1.ProcessResponse, error){
				func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
					old = r.GetCheckpointToken()
					made := processor.Result().Event([]byte("a")).AuxState([]byte("a"))
					if _, err := processor.Checkpoint(ctx, made); err != nil {
						t.Error(err)
					}
					lose(ctx)
					return nil, ctx.Err()
				},
				func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
					wantTask(t, r, "init a", "a")
					for _, by := range []*client.Client{p.here, p.other} {
						_, err := checkpoint(ctx, by, old, 2, "late")
						if client.Reason(err) != progressorv1.ErrorDetail_REASON_LEASE_LOST {
							t.Errorf("a checkpoint of the attempt that was lost: %v", err)
						}
					}
					return processor.Result().Event([]byte("b")).Complete().Done()
				},
			}}, func(ns *progressorv1.Namespace) {
				if name == "too late" {
					ns.StepTimeout = durationpb.New(2 * time.Second)
				}
			}, processor.WithCheckpoints(p.other))
			p.start()
			if _, history := p.ended(completed); history != "init a b" {
				t.Error(history)
			}
		})
	}
}

// A checkpoint token belongs to one attempt, and is not the token of a lease.
func TestPushedCheckpointTokens(t *testing.T) {
	t.Parallel()
	p := newPushing(t)
	lost := func(what string, err error) {
		t.Helper()
		if client.Reason(err) != progressorv1.ErrorDetail_REASON_LEASE_LOST {
			t.Errorf("%s: %v", what, err)
		}
	}
	p.serve(&steps{t: t, tasks: []func(
		context.Context, *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error){
		func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			token := r.GetCheckpointToken()
			decoded, err := base64.RawURLEncoding.DecodeString(token)
			if err != nil {
				t.Error(err)
			}
			changed := func(at int, to byte) string {
				forged := slices.Clone(decoded)
				forged[at] ^= to
				return base64.RawURLEncoding.EncodeToString(forged)
			}
			for _, by := range []*client.Client{p.here, p.other} {
				for what, forged := range map[string]string{
					"another process": changed(len(decoded)-1, 1), "another MAC": changed(len(decoded)-2, 1),
					"another attempt": changed(len("\x06pushed")+7, 1), "another namespace": changed(1, 1),
				} {
					_, err := checkpoint(ctx, by, forged, 1, "a")
					lost(what, err)
				}
				_, err = by.Worker.Complete(ctx, &progressorv1.CompleteRequest{
					LeaseToken: token, Answer: &progressorv1.CompleteRequest_Cancelled{}})
				lost("Complete", err)
				beats, err := by.Worker.Heartbeat(ctx, &progressorv1.HeartbeatRequest{
					WorkerId: "w", Beats: []*progressorv1.LeaseBeat{{LeaseToken: token}}})
				if err != nil || beats.GetDirectives()[0].GetDirective() !=
					progressorv1.LeaseDirective_DIRECTIVE_LOST {
					t.Errorf("Heartbeat: %v, %v", beats, err)
				}
				if _, err := by.Worker.Release(ctx, &progressorv1.ReleaseRequest{
					WorkerId: "w", LeaseTokens: []string{token}}); err != nil {
					t.Error(err)
				}
			}
			return processor.Result().Complete().Done()
		},
	}}, once)
	p.start()
	if row, history := p.ended(completed); history != "init" {
		t.Errorf("%s, %v", history, row)
	}
}

// Without the setting of the namespace, requests have no token, and processors store no
// checkpoints.
func TestPushedWithoutCheckpoints(t *testing.T) {
	t.Parallel()
	p := newPushing(t)
	p.serve(&steps{t: t, tasks: []func(
		context.Context, *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error){
		func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			_, err := processor.Checkpoint(ctx, processor.Result().Event([]byte("a")))
			if r.GetCheckpointToken() != "" || !errors.Is(err, processor.ErrNoCheckpoints) {
				t.Errorf("%q, %v", r.GetCheckpointToken(), err)
			}
			return resultAfter(7, processor.Result().Complete())
		},
	}}, func(ns *progressorv1.Namespace) {
		once(ns)
		ns.GetProcessor().GetConnect().Checkpoints = false
	}, processor.WithCheckpoints(p.here))
	p.start()
	if row, _ := p.ended(inError); !strings.Contains(row.GetDetail(), "last_event_id: must be 1") {
		t.Error(row.GetDetail())
	}
}

// A CANCEL task can store checkpoints, although the process is ending.
func TestPushedCheckpointOfCancel(t *testing.T) {
	t.Parallel()
	p := newPushing(t)
	p.serve(processor.Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		if r.GetType() != progressorv1.TaskType_TASK_TYPE_CANCEL {
			return processor.Result().Done()
		}
		yield, err := processor.Checkpoint(ctx, processor.Result().Event([]byte("a")))
		if err != nil || !yield {
			t.Errorf("%v, %v", yield, err)
		}
		return processor.Result().Event([]byte("b")).Done()
	}), unchanged, processor.WithCheckpoints(p.other))
	p.start()
	if _, err := p.other.Process.CancelProcess(t.Context(), &progressorv1.CancelProcessRequest{
		Namespace: "pushed", ProcessId: "p"}); err != nil {
		t.Fatal(err)
	}
	if _, history := p.ended(progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED); history != "a b" {
		t.Error(history)
	}
}
