package remote

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/internal/digits"
	"github.com/progressor-engine/progressor/internal/elements"
	"github.com/progressor-engine/progressor/internal/msgpack"
	"github.com/progressor-engine/progressor/internal/tracing"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/signature"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// encoding encodes plain POST requests and decodes their answers.
type encoding struct {
	contentType string
	marshal     func(proto.Message) ([]byte, error)
	unmarshal   func([]byte, proto.Message) error
}

var (
	jsonEncoding    = encoding{"application/json", protojson.Marshal, unmarshalJSON}
	msgpackEncoding = encoding{"application/msgpack", msgpack.Marshal, unmarshalMsgpack}
)

func unmarshalMsgpack(data []byte, m proto.Message) error {
	return msgpack.UnmarshalMax(data, m, process.MaxElements)
}

// unmarshalJSON rejects messages with too many values, and integers that would lose digits.
func unmarshalJSON(text []byte, m proto.Message) error {
	if err := elements.CheckJSON(text, process.MaxElements); err != nil {
		return err
	}
	if err := protojson.Unmarshal(text, m); err != nil {
		return err
	}
	return digits.Check(text, "", m)
}

// plainCall returns a function that posts the request to the URL.
func plainCall(target *url.URL, credentials *credentialSource, in encoding) callFunc {
	return func(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		body, err := in.marshal(req)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		post, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("create the request: %w", err)
		}
		keys, via, err := credentials.addTo(ctx, post.Header)
		if err != nil {
			return nil, err
		}
		if len(keys) > 0 {
			signature.Sign(post.Header, messageID(req), time.Now(), body, keys...)
		}
		post.Header.Set("Content-Type", in.contentType)
		post.Header.Set("Accept", in.contentType)
		post.Header.Set("User-Agent", "progressor")
		tracing.Inject(ctx, post.Header)
		resp, err := send(via, post) //nolint:bodyclose // read closes it
		if err != nil {
			return nil, err
		}
		return in.read(resp)
	}
}

func (in encoding) read(resp *http.Response) (*progressorv1.ProcessResponse, error) {
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(resp)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, process.MaxMessageBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > process.MaxMessageBytes {
		return nil, &processor.BadResponseError{Err: fmt.Errorf("larger than %d bytes", process.MaxMessageBytes)}
	}
	answer := &progressorv1.ProcessResponse{}
	if err := in.unmarshal(text, answer); err != nil {
		return nil, &processor.BadResponseError{Err: fmt.Errorf("read the ProcessResponse: %w", err)}
	}
	return answer, nil
}
