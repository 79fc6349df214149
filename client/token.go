package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
)

// WithToken sends a token with every request, for engines that require authentication. The token is
// a secret: use https unless the engine is on the same machine or in a trusted network.
func WithToken(token string) Option {
	return WithTokenSource(func(context.Context) (string, error) { return token, nil })
}

// WithTokenSource is like WithToken, but calls source for the token of each request. source must be
// safe for concurrent use, and should cache the token. If it returns an error, the request fails.
func WithTokenSource(source func(context.Context) (string, error)) Option {
	return WithConnectOptions(connect.WithInterceptors(bearer(source)))
}

// WithTokenFile is like WithToken, but reads the token from a file. It uses the token for 10 s
// before it reads the file again, so that the token can be rotated.
func WithTokenFile(path string) Option {
	f := &tokenFile{path: path}
	return WithTokenSource(func(context.Context) (string, error) { return f.token() })
}

// tokenFileTime is how long the content of a file is used before it is read again.
const tokenFileTime = 10 * time.Second

// tokenFile caches the token in a file. It is safe for concurrent use.
type tokenFile struct {
	path string

	reading sync.Mutex // held by the request that reads the file
	last    atomic.Pointer[readToken]
}

// readToken is a token that was read from a file.
type readToken struct {
	text string
	time time.Time
}

// token returns the token in the file. While another request reads the file, it returns the
// previous token.
func (f *tokenFile) token() (string, error) {
	switch last := f.last.Load(); {
	case last == nil:
		f.reading.Lock()
	case time.Since(last.time) < tokenFileTime || !f.reading.TryLock():
		return last.text, nil
	}
	defer f.reading.Unlock()
	if last := f.last.Load(); last != nil && time.Since(last.time) < tokenFileTime {
		return last.text, nil // another request has read it
	}
	text, err := ReadToken(f.path)
	if err != nil {
		return "", err
	}
	f.last.Store(&readToken{text, time.Now()})
	return text, nil
}

// ReadToken returns the token in a file.
func ReadToken(path string) (string, error) {
	content, err := os.ReadFile(path)
	text := strings.TrimSpace(string(content))
	switch {
	case err != nil:
		return "", fmt.Errorf("token file: %w", err)
	case text == "" || strings.ContainsAny(text, "\r\n"):
		return "", fmt.Errorf("token file %s: must contain one token", path)
	}
	return text, nil
}

// bearer is an interceptor that adds a token to each request. The function returns the token.
type bearer func(context.Context) (string, error)

// header returns the value of the header Authorization.
func (b bearer) header(ctx context.Context) (string, error) {
	token, err := b(ctx)
	if err != nil {
		return "", connect.NewError(codeOfToken(ctx), err)
	}
	if token == "" {
		return "", connect.NewError(connect.CodeUnauthenticated, errors.New("the token is empty"))
	}
	return "Bearer " + token, nil
}

// codeOfToken returns the code of the error for a request whose token could not be obtained.
func codeOfToken(ctx context.Context) connect.Code {
	switch err := ctx.Err(); {
	case err == nil:
		return connect.CodeUnauthenticated
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	default:
		return connect.CodeCanceled
	}
}

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		value, err := b.header(ctx)
		if err != nil {
			return nil, err
		}
		request.Header().Set("Authorization", value)
		return next(ctx, request)
	}
}

func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		value, err := b.header(ctx)
		if err != nil {
			return failedStream{spec, http.Header{}, err}
		}
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Authorization", value)
		return conn
	}
}

func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// failedStream is returned in place of a stream whose token could not be obtained. All its methods
// that can fail return err.
type failedStream struct {
	spec   connect.Spec
	header http.Header
	err    error
}

func (s failedStream) Spec() connect.Spec         { return s.spec }
func (failedStream) Peer() connect.Peer           { return connect.Peer{} }
func (s failedStream) RequestHeader() http.Header { return s.header }
func (failedStream) ResponseHeader() http.Header  { return http.Header{} }
func (failedStream) ResponseTrailer() http.Header { return http.Header{} }
func (s failedStream) Send(any) error             { return s.err }
func (s failedStream) Receive(any) error          { return s.err }
func (s failedStream) CloseRequest() error        { return s.err }
func (s failedStream) CloseResponse() error       { return s.err }
