package rpc

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/internal/requestid"
)

// RequestLog selects the requests that are logged.
type RequestLog string

// The values of RequestLog.
const (
	LogNoRequests     RequestLog = "off"
	LogFailedRequests RequestLog = "errors"
	LogAllRequests    RequestLog = "all"
)

// maxLoggedPath is the maximum length of a logged path in bytes. The path of a method is shorter.
const maxLoggedPath = 200

// Identify gives each request an ID, and adds it to the response. It logs the selected requests
// when they end. The handler of log adds the ID to the lines (requestid.Of).
func Identify(next http.Handler, selected RequestLog, log *slog.Logger) http.Handler {
	if selected == LogNoRequests {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(identifiedBy(w, r)))
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := &loggedRequest{begin: time.Now()}
		ctx := context.WithValue(identifiedBy(w, r), loggedKey{}, request)
		counted := &countedWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() { // also if the handler panics to close the connection
			request.learn(w.Header())
			failed := counted.status >= http.StatusBadRequest || request.code != "" && request.code != codeOK
			if failed || selected == LogAllRequests {
				request.log(ctx, log, r, counted)
			}
		}()
		next.ServeHTTP(counted, r.WithContext(ctx))
	})
}

// identifiedBy returns the context of a request with its ID, and adds the ID to the response.
func identifiedBy(w http.ResponseWriter, r *http.Request) context.Context {
	id := requestid.From(r.Header[requestid.Header])
	w.Header()[requestid.Header] = []string{id}
	return requestid.In(r.Context(), id)
}

// loggedRequest collects what the layers of the handler know about a request, for its line in the
// log. It contains no payloads, no tokens, and no parameters of URLs.
type loggedRequest struct {
	begin  time.Time
	actor  string // the principal, or "" if the request is not authenticated
	method bool   // the request has reached a method
	code   string // "" if the code is not known, as for pages
}

type loggedKey struct{}

// noteActor records the principal of a request, if the request is logged.
func noteActor(ctx context.Context, p *auth.Principal) {
	if request, ok := ctx.Value(loggedKey{}).(*loggedRequest); ok {
		request.actor = p.Name
	}
}

// noteEnd records the error of a method, if the request is logged.
func noteEnd(ctx context.Context, err error) {
	if request, ok := ctx.Value(loggedKey{}).(*loggedRequest); ok {
		request.method, request.code = true, codeText(err)
	}
}

// codeText returns the code of a method's error as a label. It is "ok" if err is nil.
func codeText(err error) string {
	if err == nil {
		return codeOK
	}
	return connect.CodeOf(err).String()
}

// learn records the code of a gRPC request that was rejected before it reached a method. The code
// is in the header of the response, whose HTTP status is 200.
func (r *loggedRequest) learn(response http.Header) {
	if n, err := strconv.ParseUint(response.Get("Grpc-Status"), 10, 8); r.code == "" && err == nil && n != 0 {
		r.code = connect.Code(n).String()
	}
}

// log writes the line of a request.
func (r *loggedRequest) log(ctx context.Context, log *slog.Logger, request *http.Request, w *countedWriter) {
	method := strings.TrimPrefix(request.URL.Path, "/")
	if !r.method {
		method = request.Method + " " + request.URL.Path
	}
	if len(method) > maxLoggedPath {
		method = strings.ToValidUTF8(method[:maxLoggedPath], "") + "…"
	}
	log.LogAttrs(ctx, slog.LevelInfo, "request", slog.String("method", method), slog.String("code", r.code),
		slog.Int("status", w.status), slog.Duration("took", time.Since(r.begin)),
		slog.Int64("received", max(request.ContentLength, 0)), slog.Int64("sent", w.bytes),
		slog.String("actor", r.actor), slog.String("peer", request.RemoteAddr))
}

// countedWriter counts the bytes of a response.
type countedWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// Unwrap supports http.ResponseController.
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends the header.
func (w *countedWriter) WriteHeader(status int) {
	if status >= http.StatusOK { // otherwise, another header follows
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write sends data.
func (w *countedWriter) Write(data []byte) (int, error) {
	n, err := w.ResponseWriter.Write(data)
	w.bytes += int64(n)
	return n, err
}
