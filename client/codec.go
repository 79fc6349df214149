package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// WithCodec encodes payloads in requests, and decodes payloads in responses and in error details
// (Detail). The codec also applies to workers of this client. Metadata, names, reasons and messages
// stay in the clear, and so do the templates of flows and the requests of HTTP targets.
//
// A payload that cannot be decoded fails the whole request with DATA_LOSS, although the engine may
// have executed it. So does a payload that is not encoded, unless codec.AcceptPlain is given. If
// the codec cannot encode the payloads of a request at the moment, the request is not sent and
// fails with UNAVAILABLE. A worker answers a task that it cannot decode as described at
// processor.Undecodable. It releases the task if the codec is unavailable.
//
// The generated client Client.Worker sends and returns encoded payloads. So do raw reads of the
// engine's own processes, whose IDs begin with "~".
func WithCodec(c codec.Codec, opts ...codec.Option) Option {
	return func(o *options) { o.payloads = codec.NewPayloads(c, opts...) }
}

// coder encodes the payloads of requests and decodes those of responses.
type coder struct{ payloads *codec.Payloads }

// encoded returns a request with encoded payloads.
func (c coder) encoded(ctx context.Context, message any) (any, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return message, nil
	}
	encoded, err := c.payloads.Encode(ctx, m)
	if err != nil {
		return nil, connect.NewError(codeOfEncode(ctx, err), fmt.Errorf("encode the request: %w", err))
	}
	return encoded, nil
}

// codeOfEncode returns the code for a request that could not be encoded and was not sent.
func codeOfEncode(ctx context.Context, err error) connect.Code {
	switch {
	case !codec.Unavailable(err):
		return connect.CodeInvalidArgument
	case errors.Is(ctx.Err(), context.Canceled):
		return connect.CodeCanceled
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	default:
		return connect.CodeUnavailable
	}
}

// decode decodes a response in place.
func (c coder) decode(ctx context.Context, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return nil
	}
	if err := c.payloads.Decode(ctx, m); err != nil {
		return connect.NewError(connect.CodeDataLoss, fmt.Errorf("decode the response: %w", err))
	}
	return nil
}

// failed decodes the detail of an engine error. If the detail cannot be decoded, failed returns err
// unchanged.
func (c coder) failed(ctx context.Context, err error) error {
	detail := Detail(err)
	if detail == nil || c.payloads.Decode(ctx, detail) != nil {
		return err
	}
	return &decodedError{err, detail}
}

// decodedError is an error of the engine whose detail was decoded.
type decodedError struct {
	error
	detail *progressorv1.ErrorDetail
}

func (e *decodedError) Unwrap() error { return e.error }

// isOfWorker reports whether a method belongs to workers. Worker encodes and decodes the payloads
// of each task separately, so that a task that it cannot decode does not affect the others.
func isOfWorker(spec connect.Spec) bool {
	return strings.HasPrefix(spec.Procedure, "/"+progressorv1connect.WorkerServiceName+"/")
}

func (c coder) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if isOfWorker(request.Spec()) {
			return next(ctx, request)
		}
		message, err := c.encoded(ctx, request.Any())
		if err != nil {
			return nil, err
		}
		response, err := next(ctx, encodedRequest{request, message})
		if err != nil {
			return nil, c.failed(ctx, err)
		}
		return response, c.decode(ctx, response.Any())
	}
}

// encodedRequest is a request whose message was replaced by one with encoded payloads.
type encodedRequest struct {
	connect.AnyRequest
	message any
}

// Any returns the message.
func (r encodedRequest) Any() any { return r.message }

func (c coder) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		return &codedStream{next(ctx, spec), c, ctx}
	}
}

func (c coder) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// codedStream is a stream whose messages have decoded payloads.
type codedStream struct {
	connect.StreamingClientConn
	coder coder
	ctx   context.Context // context of the stream
}

func (s *codedStream) Send(message any) error {
	encoded, err := s.coder.encoded(s.ctx, message)
	if err != nil {
		return err
	}
	return s.StreamingClientConn.Send(encoded)
}

func (s *codedStream) Receive(message any) error {
	if err := s.StreamingClientConn.Receive(message); err != nil {
		return err // the error is not about a task, so its detail has no payloads
	}
	return s.coder.decode(s.ctx, message)
}

// decodedDetail returns the detail of an error that WithCodec has decoded, or nil.
func decodedDetail(err error) *progressorv1.ErrorDetail {
	if decoded, ok := errors.AsType[*decodedError](err); ok {
		return decoded.detail
	}
	return nil
}
