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

// maxErrorBytes is how much of an answer that is an error is read.
const maxErrorBytes = 64 << 10

type callFunc = func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error)

// rpcCall calls ProcessorService by the Connect protocol or gRPC.
func rpcCall(target *url.URL, headers http.Header, transport *http.Transport, grpc bool) callFunc {
	opts := []connect.ClientOption{
		connect.WithReadMaxBytes(process.MaxMessageBytes),
		// Messages are small and the way is short: compressing costs more than it saves.
		connect.WithAcceptCompression("gzip", nil, nil),
	}
	if grpc {
		opts = append(opts, connect.WithGRPC())
	}
	client := progressorv1connect.NewProcessorServiceClient(
		&rpcTransport{next: transport, headers: headers, grpc: grpc}, target.String(), opts...)
	return func(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		resp, err := client.Process(ctx, req)
		if err != nil {
			return nil, rpcError(err)
		}
		return resp, nil
	}
}

// rpcError gives an error of a call its class, but for those of the transport, which have it or are lost.
func rpcError(err error) error {
	code := connect.CodeOf(err)
	if connect.IsWireError(err) { // the other side said so
		switch code {
		case connect.CodeUnavailable, connect.CodeResourceExhausted:
			return &processor.UnreachableError{Err: fmt.Errorf("it answered %w", err)}
		case connect.CodeDeadlineExceeded:
			return fmt.Errorf("it answered %s: %w", code, context.DeadlineExceeded)
		default:
			return &processor.BadResponseError{Err: fmt.Errorf("it answered the error %w", err)}
		}
	}
	if _, lost := errors.AsType[*processor.LostError](err); lost || processor.Unreachable(err) || processor.BadResponse(err) {
		return err
	}
	if code == connect.CodeUnavailable {
		return &processor.LostError{Err: err}
	}
	return &processor.BadResponseError{Err: err} // too large, not to be decoded, a content type of another kind
}

// rpcTransport is the way of Connect's client to the network: it sends the configured headers, and answers with a class
// where the status says more than the code that Connect would make of it (502 and 504 would be UNAVAILABLE).
type rpcTransport struct {
	next    *http.Transport
	headers http.Header
	grpc    bool
}

func (t *rpcTransport) Do(req *http.Request) (*http.Response, error) {
	setHeaders(req.Header, t.headers)
	tracing.Inject(req.Context(), req.Header)
	if !t.grpc {
		whole, err := onewrite.Request(req)
		if err != nil {
			return nil, err
		}
		req = whole
	}
	resp, err := send(t.next, req)
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
			return resp, nil // an error of Connect's own
		}
	}
	return nil, statusError(resp)
}

// restored is a body that was read, to be read again.
type restored struct {
	io.Reader
	io.Closer
}

// statusError is the class of an HTTP status that is not 200. It reads what is left of the body, so that the connection
// can be used again, and closes it.
func statusError(resp *http.Response) error {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorBytes)) // a connection less to use again, no more
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

func setHeaders(header, configured http.Header) {
	for name, values := range configured {
		header[name] = values
	}
}
