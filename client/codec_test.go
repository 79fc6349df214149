package client_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"

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

// The engine, which returns the args of a call, sees encoded payloads. The caller sees none.
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
		t.Errorf("the retry had other args: %q, %v", s.args, err)
	}
}

func TestCodecErrorsOfClients(t *testing.T) {
	t.Parallel()
	s := &scripted{}
	request := &progressorv1.CallRequest{Namespace: "n", ProcessId: "p", Args: []byte("tea")}
	c := serve(t, s, client.WithCodec(brokenCodec{newCodec(t, "k1")}))
	if _, err := c.Call(t.Context(), request); !errors.Is(err, errBroken) || len(s.args) > 0 ||
		connect.CodeOf(err) != connect.CodeInvalidArgument ||
		!strings.Contains(err.Error(), "encode the request: args: ") {
		t.Errorf("got %v after %d requests", err, len(s.args))
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
