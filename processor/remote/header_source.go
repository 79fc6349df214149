package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/signature"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// headerSource returns the configured headers for each request, and the keys that sign it.
type headerSource struct {
	fixed http.Header
	open  func(context.Context) (map[string]string, []signature.Key, error) // nil if fixed is sent
}

// addTo adds the headers to a request. Its error is a *processor.UnreachableError, because the
// request was not sent.
func (s *headerSource) addTo(ctx context.Context, header http.Header) (keys []signature.Key, err error) {
	configured := s.fixed
	if s.open != nil {
		var opened map[string]string
		if opened, keys, err = s.open(ctx); err == nil {
			configured, err = parseHeaders(opened)
		}
		if invalid, ok := errors.AsType[*process.InvalidError](err); ok {
			err = fmt.Errorf("a header %s", invalid.Message)
		}
		if err != nil {
			return nil, &processor.UnreachableError{Err: fmt.Errorf("its headers or keys are not known: %w", err)}
		}
	}
	for name, values := range configured {
		header[name] = values
	}
	return keys, nil
}

// messageID returns the webhook-id of a request. It is another one for each attempt.
func messageID(req *progressorv1.ProcessRequest) string {
	return fmt.Sprintf("task_%s_%d_%d", signature.Escape(req.GetProcess().GetNamespace()), req.GetTaskId(),
		req.GetFencingToken())
}

type messageIDKey struct{}

// signed returns a request of Connect with a signature. It reads and closes the body of req.
func signed(req *http.Request, keys []signature.Key) (*http.Request, error) {
	body, err := io.ReadAll(req.Body)
	if closeErr := req.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("read the body of the request: %w", err)
	}
	id, _ := req.Context().Value(messageIDKey{}).(string)
	signature.Sign(req.Header, id, time.Now(), body, keys...)
	whole := *req
	whole.ContentLength = int64(len(body))
	whole.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	whole.Body, err = whole.GetBody()
	return &whole, err
}
