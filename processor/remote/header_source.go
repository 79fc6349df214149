package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
)

// headerSource returns the configured headers for each request.
type headerSource struct {
	fixed http.Header
	open  func(context.Context) (map[string]string, error) // nil if fixed is sent
}

// addTo adds the headers to those of a request. Its error is a *processor.UnreachableError, because
// the request was not sent.
func (s *headerSource) addTo(ctx context.Context, header http.Header) error {
	configured := s.fixed
	if s.open != nil {
		opened, err := s.open(ctx)
		if err == nil {
			configured, err = parseHeaders(opened)
		}
		if invalid, ok := errors.AsType[*process.InvalidError](err); ok {
			err = fmt.Errorf("a header %s", invalid.Message)
		}
		if err != nil {
			return &processor.UnreachableError{Err: fmt.Errorf("its headers are not known: %w", err)}
		}
	}
	for name, values := range configured {
		header[name] = values
	}
	return nil
}
