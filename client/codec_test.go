package client_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// newCodec returns a codec with one key.
func newCodec(t *testing.T, id string) codec.Codec {
	t.Helper()
	c, err := codec.NewAESGCM(id, map[string][]byte{id: bytes.Repeat([]byte{1}, codec.KeyBytes)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// brokenCodec is a codec whose keys cannot be reached.
type brokenCodec struct{ codec.Codec }

var errBroken = errors.New("the key service is down")

func (brokenCodec) Encode(context.Context, codec.Payload) ([]byte, error) { return nil, errBroken }

// The engine returns the args of a call. It sees only encoded payloads, and the caller sees only
// decoded ones.
func TestCodecOfClients(t *testing.T) {
	t.Parallel()
	s := &scripted{}
	c := serve(t, s, client.WithCodec(newCodec(t, "k1")))
	request := &progressorv1.CallRequest{Namespace: "n", ProcessId: "p", Args: []byte("tea")}
	resp, err := c.Call(t.Context(), request)
	if err != nil || string(resp.GetResponse()) != "tea" || string(request.GetArgs()) != "tea" {
		t.Errorf("got %v, %v, after the request %v", resp, err, request)
	}
	if len(s.args) != 1 || bytes.Contains(s.args[0], []byte("tea")) {
		t.Errorf("the engine got the args %q", s.args)
	}
	// A retry sends the same bytes, because the engine compares them.
	s.errs = []error{connect.NewError(connect.CodeUnavailable, errors.New("restart"))}
	if _, err := c.Call(t.Context(), request); err != nil || len(s.args) != 3 || !bytes.Equal(s.args[1], s.args[2]) {
		t.Errorf("the retry had different args: %q, %v", s.args, err)
	}
}

func TestCodecErrorsOfClients(t *testing.T) {
	t.Parallel()
	s := &scripted{}
	request := &progressorv1.CallRequest{Namespace: "n", ProcessId: "p", Args: []byte("tea")}
	c := serve(t, s, client.WithCodec(brokenCodec{newCodec(t, "k1")}))
	if _, err := c.Call(t.Context(), request); !errors.Is(err, errBroken) || len(s.args) > 0 ||
		connect.CodeOf(err) != connect.CodeUnavailable ||
		!strings.Contains(err.Error(), "encode the request: args: ") {
		t.Errorf("got %v after %d requests", err, len(s.args))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Call(ended, request); connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("an ended context: %v", err)
	}
	job := &progressorv1.EnqueueRequest{Namespace: "n", Name: "j", Args: structpb.NewNumberValue(math.NaN())}
	if _, err := c.Job.Enqueue(t.Context(), job); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("args that are not JSON: %v", err)
	}
	s.response = []byte("in the clear")
	c = serve(t, s, client.WithCodec(newCodec(t, "k1")))
	if _, err := c.Call(t.Context(), request); !errors.Is(err, codec.ErrPlain) || len(s.args) != 1 ||
		connect.CodeOf(err) != connect.CodeDataLoss ||
		!strings.Contains(err.Error(), "decode the response: response: ") {
		t.Errorf("got %v after %d requests", err, len(s.args))
	}
	c = serve(t, s, client.WithCodec(newCodec(t, "k1"), codec.AcceptPlain()))
	if resp, err := c.Call(t.Context(), request); err != nil || string(resp.GetResponse()) != "in the clear" {
		t.Errorf("got %v, %v", resp, err)
	}
}

// flakyCodec is a codec whose first Decode fails, and whose second one panics.
type flakyCodec struct {
	codec.Codec
	decodes atomic.Int32
}

func (c *flakyCodec) Decode(ctx context.Context, p codec.Payload) ([]byte, error) {
	switch c.decodes.Add(1) {
	case 1:
		return nil, errBroken
	case 2:
		panic("a bug of the codec")
	}
	return c.Codec.Decode(ctx, p)
}

// A worker releases a task while its codec is unavailable, so no attempt fails. If the codec
// panics, only the attempt fails.
func TestWorkerOfAnUnavailableCodec(t *testing.T) {
	e := newTestEngine(t)
	keys := newCodec(t, "k1")
	c := client.New(e.url, client.WithCodec(keys))
	w := client.NewWorker(client.New(e.url, client.WithCodec(&flakyCodec{Codec: keys})), []string{"pull"},
		client.WithWorkerLogger(slog.New(slog.DiscardHandler)))
	client.Handle(w, "send", func(ctx context.Context, text string) (string, error) {
		return text + client.LeaseOf(ctx).GetJob().GetArgs().GetStringValue(), nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	resp, err := client.Enqueue(t.Context(), c, "pull", "send", "tea", client.WithJobOptions(&progressorv1.JobOptions{
		MaxRetry: 1, KeepResult: true,
		Backoff: &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Millisecond)}}}))
	if err != nil {
		t.Fatal(err)
	}
	job, err := c.AwaitJob(t.Context(),
		&progressorv1.GetJobRequest{Namespace: "pull", JobId: resp.GetJob().GetJobId()},
		func(*progressorv1.Job) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if f := job.GetFailures(); job.GetResult().GetStringValue() != "teatea" || len(f) != 1 ||
		f[0].GetReason() != "panic" {
		t.Errorf("the job is %v", job)
	}
}
