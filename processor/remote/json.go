package remote

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// jsonCall posts the request as JSON to the URL as it is.
func jsonCall(target *url.URL, headers http.Header, transport *http.Transport) callFunc {
	headers = headers.Clone()
	headers.Set("Content-Type", "application/json")
	headers.Set("Accept", "application/json")
	headers.Set("User-Agent", "progressor")
	return func(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		body, err := protojson.Marshal(req)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		post, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("make the request: %w", err)
		}
		setHeaders(post.Header, headers)
		resp, err := send(transport, post) //nolint:bodyclose // readJSON closes it
		if err != nil {
			return nil, err
		}
		return readJSON(resp)
	}
}

func readJSON(resp *http.Response) (*progressorv1.ProcessResponse, error) {
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(resp)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, process.MaxMessageBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > process.MaxMessageBytes {
		return nil, &processor.BadResponseError{Err: fmt.Errorf("it is larger than %d bytes", process.MaxMessageBytes)}
	}
	if err := exactNumbers(text); err != nil {
		return nil, &processor.BadResponseError{Err: err}
	}
	answer := &progressorv1.ProcessResponse{}
	if err := protojson.Unmarshal(text, answer); err != nil {
		return nil, &processor.BadResponseError{Err: fmt.Errorf("read the ProcessResponse: %w", err)}
	}
	return answer, nil
}
