package processor_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// sender records checkpoints in place of an engine.
type sender struct {
	err  error
	sent []*progressorv1.CheckpointRequest
}

func (s *sender) SendCheckpoint(
	ctx context.Context, r *progressorv1.CheckpointRequest,
) (*progressorv1.CheckpointResponse, error) {
	s.sent = append(s.sent, r)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &progressorv1.CheckpointResponse{LastEventId: r.GetLastEventId() + int64(len(r.GetEvents())), Yield: true},
		s.err
}

// pushedTo sends a TIMEOUT with event 4 to the handler of a processor.
func pushedTo(
	t *testing.T, f processor.Func, token string, opts ...processor.Option,
) (*progressorv1.ProcessResponse, error) {
	t.Helper()
	server := httptest.NewServer(processor.Handler(f, opts...))
	defer server.Close()
	return progressorv1connect.NewProcessorServiceClient(server.Client(), server.URL).Process(t.Context(),
		&progressorv1.ProcessRequest{
			Type: progressorv1.TaskType_TASK_TYPE_TIMEOUT, CheckpointToken: token,
			Process: &progressorv1.Process{LastEventId: 4},
		})
}

// A handler sends checkpoints with the token of the request and encoded payloads. The response has
// the number of the last event.
func TestHandlerSendsCheckpoints(t *testing.T) {
	t.Parallel()
	keys, err := codec.NewAESGCM("k", map[string][]byte{"k": make([]byte, codec.KeyBytes)})
	if err != nil {
		t.Fatal(err)
	}
	s, late := &sender{}, context.Context(nil)
	resp, err := pushedTo(t, func(
		ctx context.Context, _ *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		late = ctx
		own, cancel := context.WithCancel(ctx)
		if yield, err := processor.Checkpoint(own, processor.Result().Event([]byte("secret"))); err != nil || !yield {
			t.Errorf("%v, %v", yield, err)
		}
		cancel()
		if _, err := processor.Checkpoint(own, processor.Result().Event(nil)); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the context: %v", err)
		}
		if _, err := processor.Checkpoint(ctx, processor.Result().SetTimerAfter(0)); !processor.BadResponse(err) {
			t.Errorf("a checkpoint with a timer: %v", err)
		}
		_, err := processor.Checkpoint(ctx, processor.Result().Event([]byte("a")).Event([]byte("b")))
		if err != nil {
			return nil, err
		}
		return processor.Result().Response([]byte("done")).Done()
	}, "token", processor.WithCodec(keys), processor.WithCheckpoints(s))
	if err != nil || resp.GetLastEventId() != 7 || resp.GetResult() == nil {
		t.Errorf("%v, %v", resp, err)
	}
	if len(s.sent) != 2 || s.sent[0].GetLeaseToken() != "token" || s.sent[0].GetLastEventId() != 4 ||
		s.sent[1].GetLastEventId() != 5 || strings.Contains(s.sent[0].String(), "secret") {
		t.Errorf("%v", s.sent)
	}
	_, err = processor.Checkpoint(context.WithoutCancel(late), processor.Result().Event(nil))
	if !errors.Is(err, process.ErrFenced) || len(s.sent) != 2 {
		t.Errorf("after the attempt: %v", err)
	}
}

// If it is unknown whether a checkpoint is stored, the attempt fails, even if the processor returns
// a result.
func TestHandlerDoesNotKnowItsCheckpoints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		reason string
	}{
		{process.ErrUnavailable, process.ReasonUnavailable}, {errors.New("refused"), ""},
	} {
		s := &sender{err: c.err}
		resp, err := pushedTo(t, func(
			ctx context.Context, _ *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			for range 2 {
				if _, err := processor.Checkpoint(ctx, processor.Result().Event(nil)); !errors.Is(err, c.err) {
					t.Errorf("%v", err)
				}
			}
			return processor.Result().Done()
		}, "token", processor.WithCheckpoints(s))
		if err != nil || resp.GetFailure().GetReason() != c.reason {
			t.Errorf("%v: %v, %v", c.err, resp, err)
		}
		if want := len(c.reason) == 0; (len(s.sent) == 2) != want {
			t.Errorf("%v: %d checkpoints were sent", c.err, len(s.sent))
		}
	}
}

// A request without a token stores no checkpoints, and neither does a handler without a client.
func TestHandlerWithoutCheckpoints(t *testing.T) {
	t.Parallel()
	var s sender
	f := func(ctx context.Context, _ *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		_, err := processor.Checkpoint(ctx, processor.Result().Event(nil))
		if !errors.Is(err, processor.ErrNoCheckpoints) {
			t.Errorf("%v", err)
		}
		return nil, nil
	}
	for token, opts := range map[string][]processor.Option{"": {processor.WithCheckpoints(&s)}, "token": nil} {
		if _, err := pushedTo(t, f, token, opts...); connect.CodeOf(err) != connect.CodeInternal {
			t.Errorf("%v", err)
		}
	}
}
