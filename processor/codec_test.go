package processor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// With AcceptPlain, a processor also reads payloads in the clear, and encodes the payloads that it
// returns. Without AcceptPlain, a call in the clear is rejected, and a message in the clear fails.
func TestCodecIsIntroduced(t *testing.T) {
	t.Parallel()
	keys, err := codec.NewAESGCM("k1", map[string][]byte{"k1": bytes.Repeat([]byte{1}, codec.KeyBytes)})
	if err != nil {
		t.Fatal(err)
	}
	p := processor.Func(func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		return processor.Result().Response(r.GetArgs()).AuxState(r.GetProcess().GetAuxState()).Done()
	})
	process := func(r *progressorv1.ProcessRequest, opts ...codec.Option) *progressorv1.ProcessResponse {
		t.Helper()
		server := httptest.NewServer(processor.Handler(p, processor.WithCodec(keys, opts...)))
		defer server.Close()
		resp, err := progressorv1connect.NewProcessorServiceClient(server.Client(), server.URL).Process(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	request := func(of progressorv1.TaskType) *progressorv1.ProcessRequest {
		return &progressorv1.ProcessRequest{Type: of, Args: []byte("tea"), Process: &progressorv1.Process{
			ProcessId: "p", AuxState: []byte("green")}}
	}
	call, notify := progressorv1.TaskType_TASK_TYPE_CALL, progressorv1.TaskType_TASK_TYPE_NOTIFY
	resp := process(request(call), codec.AcceptPlain())
	if text := resp.String(); strings.Contains(text, "tea") || strings.Contains(text, "green") {
		t.Errorf("the response is in the clear: %s", text)
	}
	payloads := codec.NewPayloads(keys)
	if err := payloads.Decode(t.Context(), resp); err != nil || string(resp.GetResult().GetResponse()) != "tea" ||
		string(resp.GetResult().GetAuxState()) != "green" {
		t.Errorf("got %v, %v", resp, err)
	}
	encoded, err := payloads.Encode(t.Context(), request(call))
	if err != nil {
		t.Fatal(err)
	}
	if resp := process(proto.CloneOf(encoded.(*progressorv1.ProcessRequest))); resp.GetResult() == nil {
		t.Errorf("an encoded request: %v", resp)
	}
	const want = "decode the request: args: the payload is not encoded"
	if r := process(request(call)).GetRejection(); r.GetReason() != processor.ReasonUndecodable ||
		r.GetMessage() != want {
		t.Errorf("a call in the clear: %v", r)
	}
	if f := process(request(notify)).GetFailure(); f.GetReason() != processor.ReasonUndecodable ||
		f.GetMessage() != want || f.GetNonRetryable() {
		t.Errorf("a message in the clear: %v", f)
	}
}

// outage is a codec whose keys cannot be reached.
type outage struct{ codec.Codec }

func (outage) Decode(context.Context, codec.Payload) ([]byte, error) {
	return nil, errors.New("the key service is down")
}

// While the codec is unavailable, the handler returns the code UNAVAILABLE, so that the engine
// tries each task again. A rejection of a call would be final.
func TestCodecIsUnavailable(t *testing.T) {
	t.Parallel()
	p := processor.Handler(processor.Echo(), processor.WithCodec(outage{}))
	server := httptest.NewServer(p)
	defer server.Close()
	for _, of := range []progressorv1.TaskType{
		progressorv1.TaskType_TASK_TYPE_CALL, progressorv1.TaskType_TASK_TYPE_INIT,
	} {
		_, err := progressorv1connect.NewProcessorServiceClient(server.Client(), server.URL).Process(t.Context(),
			&progressorv1.ProcessRequest{Type: of, Context: []byte("encoded")})
		if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "the key service is down") {
			t.Errorf("%v: %v", of, err)
		}
	}
}

// With a codec, error messages contain no part of args, states and events that are not the expected
// JSON. Without a codec, the error messages quote the invalid part.
func TestCodecHidesParts(t *testing.T) {
	t.Parallel()
	keys, err := codec.NewAESGCM("k1", map[string][]byte{"k1": bytes.Repeat([]byte{1}, codec.KeyBytes)})
	if err != nil {
		t.Fatal(err)
	}
	type order struct {
		Paid  time.Time `json:"paid"`
		Count int       `json:"count"`
	}
	p := processor.Func(func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		if _, err := processor.StateOf[order](r); err != nil {
			return nil, err
		}
		if _, err := processor.HistoryOf[order](r); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		_, err := processor.ArgsOf[order](r)
		return nil, err
	})
	request := func(part int, text string) *progressorv1.ProcessRequest {
		r := &progressorv1.ProcessRequest{Type: progressorv1.TaskType_TASK_TYPE_CALL,
			Process: &progressorv1.Process{ProcessId: "p"}}
		switch part {
		case 0:
			r.Args = []byte(text)
		case 1:
			r.Process.AuxState = []byte(text)
		default:
			r.Process.History = []*progressorv1.Event{{Payload: []byte(text)}}
		}
		return r
	}
	process := func(r *progressorv1.ProcessRequest, opts ...processor.Option) string {
		t.Helper()
		server := httptest.NewServer(processor.Handler(p, opts...))
		defer server.Close()
		resp, err := progressorv1connect.NewProcessorServiceClient(server.Client(), server.URL).Process(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetRejection().GetMessage() + resp.GetFailure().GetMessage()
	}
	for _, c := range []struct{ text, says, want string }{
		{`{"count": 4711.5}`, "4711.5", "the JSON number that ends at byte 16 cannot be decoded as int"},
		{`{"paid": "hunter2"}`, "hunter2", "not the expected JSON (*time.ParseError)"},
		{`{"count": ~}`, "~", "not valid JSON at byte 11"},
		{`{"hunter2": 1}`, "hunter2", "the JSON has an unknown field"},
	} {
		for part := range 3 {
			if part > 0 && strings.HasPrefix(c.text, `{"hunter2"`) { // only args must not have unknown members
				continue
			}
			encoded, err := codec.NewPayloads(keys).Encode(t.Context(), request(part, c.text))
			if err != nil {
				t.Fatal(err)
			}
			if got := process(request(part, c.text)); !strings.Contains(got, c.says) {
				t.Errorf("%s: without a codec: %s", c.text, got)
			}
			got := process(encoded.(*progressorv1.ProcessRequest), processor.WithCodec(keys))
			if strings.Contains(got, c.says) || !strings.HasSuffix(got, c.want) {
				t.Errorf("%s: got %s, want %s", c.text, got, c.want)
			}
		}
	}
}
