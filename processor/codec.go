package processor

import (
	"context"
	"fmt"

	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// WithCodec decodes the payloads of requests and encodes those of responses. Metadata, names,
// reasons and messages stay in the clear. Payloads that are not encoded are errors, unless
// codec.AcceptPlain is given. See Undecodable. If args or a state are not the expected JSON, the
// message does not quote them: see WithoutContent.
func WithCodec(c codec.Codec, opts ...codec.Option) Option {
	return func(o *options) { o.payloads = codec.NewPayloads(c, opts...) }
}

// WithPayloads is like WithCodec, but uses existing Payloads.
func WithPayloads(p *codec.Payloads) Option { return func(o *options) { o.payloads = p } }

// coded is a processor whose requests and responses have encoded payloads. It modifies the requests
// that it gets.
type coded struct {
	processor Processor // must be guarded (see Guard), so that its failures are responses
	payloads  *codec.Payloads
}

func (c *coded) Process(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	if err := c.payloads.Decode(ctx, req); err != nil {
		return nil, Undecodable(req, err)
	}
	resp, err := c.processor.Process(ctx, req)
	if err != nil {
		return nil, err
	}
	encoded, err := c.payloads.Encode(ctx, resp)
	if err != nil {
		return nil, Fail(ReasonError, "encode the response: %w", err)
	}
	return encoded.(*progressorv1.ProcessResponse), nil
}

// private is a processor whose errors contain no part of the payloads: see WithoutContent.
type private struct{ processor Processor }

func (p *private) Process(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	resp, err := p.processor.Process(ctx, r)
	return resp, WithoutContent(err)
}

// Undecodable returns the answer to a task whose payloads cannot be decoded. A CALL or a REPAIR is
// rejected, so that the process does not change. Other tasks fail. Those with a retry policy are
// retried, because other processors may have the key. Both have the reason "undecodable". If the
// codec itself is unavailable, Undecodable returns an UnreachableError, so that the engine retries
// all tasks.
func Undecodable(req *progressorv1.ProcessRequest, err error) error {
	if codec.Unavailable(err) {
		return &UnreachableError{Err: fmt.Errorf("decode the request: %w", err)}
	}
	switch req.GetType() {
	case progressorv1.TaskType_TASK_TYPE_CALL, progressorv1.TaskType_TASK_TYPE_REPAIR:
		return Reject(ReasonUndecodable, "decode the request: %w", err)
	default:
		return Fail(ReasonUndecodable, "decode the request: %w", err)
	}
}
