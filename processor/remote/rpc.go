package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/internal/onewrite"
	"github.com/progressor-engine/progressor/internal/tracing"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// maxErrorBytes is the maximum number of bytes of an error response that are read.
const maxErrorBytes = 64 << 10

type callFunc = func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error)

// rpcCall returns a function that calls ProcessorService by the Connect protocol or gRPC.
func rpcCall(target *url.URL, credentials *credentialSource, grpc bool) callFunc {
	opts := []connect.ClientOption{
		connect.WithReadMaxBytes(process.MaxMessageBytes),
		connect.WithCodec(protoCodec{}),
		// Messages are small and the network is fast: compression costs more than it saves.
		connect.WithAcceptCompression("gzip", nil, nil),
	}
	if grpc {
		opts = append(opts, connect.WithGRPC())
	}
	client := progressorv1connect.NewProcessorServiceClient(
		&rpcTransport{credentials: credentials, grpc: grpc}, target.String(), opts...)
	return func(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		if credentials.open != nil {
			ctx = context.WithValue(ctx, messageIDKey{}, messageID(req))
		}
		resp, err := client.Process(ctx, req)
		if err != nil {
			return nil, rpcError(err)
		}
		return resp, nil
	}
}

// rpcError classifies an error of a call. Errors that the transport has classified are unchanged.
func rpcError(err error) error {
	code := connect.CodeOf(err)
	if connect.IsWireError(err) { // sent by the processor
		switch code {
		case connect.CodeUnavailable, connect.CodeResourceExhausted:
			return &processor.UnreachableError{Err: fmt.Errorf("it answered %w", err)}
		case connect.CodeDeadlineExceeded:
			return fmt.Errorf("it answered %s: %w", code, context.DeadlineExceeded)
		default:
			return &processor.BadResponseError{Err: fmt.Errorf("it answered the error %w", err)}
		}
	}
	if _, lost := errors.AsType[*processor.LostError](err); lost || processor.Unreachable(err) ||
		processor.BadResponse(err) {
		return err
	}
	if code == connect.CodeUnavailable {
		return &processor.LostError{Err: err}
	}
	return &processor.BadResponseError{Err: err} // too large, not decodable, or of another content type
}

// rpcTransport is the HTTP client of Connect's client. It sends the configured headers. It
// classifies HTTP statuses for which Connect's code would be wrong: 502 and 504 would be
// UNAVAILABLE.
type rpcTransport struct {
	credentials *credentialSource
	grpc        bool
}

func (t *rpcTransport) Do(req *http.Request) (*http.Response, error) {
	keys, via, err := t.credentials.addTo(req.Context(), req.Header)
	if err != nil {
		return nil, err
	}
	tracing.Inject(req.Context(), req.Header)
	switch {
	case len(keys) > 0:
		req, err = signed(req, keys)
	case !t.grpc:
		req, err = onewrite.Request(req)
	}
	if err != nil {
		return nil, err
	}
	resp, err := send(via, req)
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	if !t.grpc && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
		if err != nil {
			return nil, errors.Join(&processor.BadResponseError{Err: err}, resp.Body.Close())
		}
		var said struct {
			Code connect.Code `json:"code"`
		}
		if json.Unmarshal(text, &said) == nil && said.Code != 0 {
			resp.Body = &restored{Reader: bytes.NewReader(text), Closer: resp.Body}
			return resp, nil // an error in Connect's format
		}
	}
	return nil, statusError(resp)
}

// restored is a body that was read and can be read again.
type restored struct {
	io.Reader
	io.Closer
}

// statusError returns the error for an HTTP status other than 200. It reads the rest of the body,
// so that the connection can be reused, and closes it.
func statusError(resp *http.Response) error {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorBytes)) // on an error the connection is not reused
	_ = resp.Body.Close()
	err := fmt.Errorf("it answered HTTP %d (%s)", resp.StatusCode, http.StatusText(resp.StatusCode))
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return &processor.UnreachableError{Err: err}
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		err = fmt.Errorf("%w; redirects are not followed", err)
	}
	return &processor.BadResponseError{Err: err}
}
