package processor

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/internal/msgpack"
	"github.com/progressor-engine/progressor/internal/tracing"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// maxPlainBytes bounds a request that is posted: payloads are base64 in JSON, four bytes for three.
const maxPlainBytes = process.MaxMessageBytes / 3 * 4

// compressFrom is the size from which answers are compressed for those who ask for it: the engine does not.
const compressFrom = 16 << 10

// Option changes how Handler and Serve work.
type Option func(*options)

type options struct {
	logger      *slog.Logger
	stopTimeout time.Duration
	middleware  []func(http.Handler) http.Handler
	tls         *tls.Config
}

func newOptions(opts []Option) options {
	o := options{logger: slog.Default(), stopTimeout: 30 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// WithLogger sets where panics and the server's errors are logged. Default: slog.Default().
func WithLogger(logger *slog.Logger) Option {
	return func(o *options) { o.logger = logger }
}

// WithStopTimeout sets how long Serve waits for the tasks that run once its context has ended. Default: 30 s; 0 or less:
// they are cut off at once.
func WithStopTimeout(d time.Duration) Option {
	return func(o *options) { o.stopTimeout = d }
}

// WithMiddleware wraps the handler; the first one given is the outermost. It is the place to check the headers that the
// namespace's configuration sends, such as Authorization.
func WithMiddleware(wrap func(http.Handler) http.Handler) Option {
	return func(o *options) { o.middleware = append(o.middleware, wrap) }
}

// WithTLS makes Serve speak TLS (HTTP/1.1 and HTTP/2) with this configuration. Default: no TLS.
func WithTLS(config *tls.Config) Option {
	return func(o *options) { o.tls = config }
}

// Handler makes a processor an http.Handler, which the engine can push to by any of its encodings and protocols:
//
//   - Connect, gRPC and gRPC-Web at /progressor.v1.ProcessorService/ (gRPC needs a server that speaks HTTP/2, without TLS
//     by http.Protocols.SetUnencryptedHTTP2; Serve does);
//   - plain JSON by POST at /: a ProcessRequest as protobuf's JSON, answered by a ProcessResponse;
//   - the same with application/msgpack in MessagePack, at either path.
//
// Messages are at most 16 MiB, decompressed; JSON and MessagePack are read strictly: a field or an enum name that is not known is an
// error.
// The processor is guarded (see Guard). Where the engine traces, ctx holds the span of the attempt (OpenTelemetry's trace.SpanContextFromContext), so
// that spans made in it are its children; where middleware has made a span of the request, that one stays.
func Handler(p Processor, opts ...Option) http.Handler {
	o := newOptions(opts)
	served := &service{processor: Guard(p, o.logger)}
	mux := http.NewServeMux()
	path, rpc := progressorv1connect.NewProcessorServiceHandler(served,
		connect.WithReadMaxBytes(process.MaxMessageBytes),
		connect.WithCompressMinBytes(compressFrom),
		connect.WithCodec(strictJSON("json")),
		connect.WithCodec(strictJSON("json; charset=utf-8")),
	)
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if in, _ := encodingOf(r); in.contentType == msgpackEncoding.contentType && r.Method == http.MethodPost {
			served.servePlain(w, r)
			return
		}
		rpc.ServeHTTP(w, r)
	})
	mux.HandleFunc("POST /{$}", served.servePlain)
	handler := traced(mux)
	for i := len(o.middleware) - 1; i >= 0; i-- {
		handler = o.middleware[i](handler)
	}
	return handler
}

// traced has the context of an attempt hold the engine's span, where the request names one: spans that the processor makes are its children.
func traced(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx := tracing.Extract(r.Context(), r.Header); ctx != r.Context() {
			r = r.WithContext(ctx)
		}
		h.ServeHTTP(w, r)
	})
}

// service is a processor as Connect's handler wants it: its errors are codes, and nothing it answers is too large to send.
type service struct{ processor Processor }

func (s *service) Process(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	resp, err := s.answer(ctx, req)
	switch {
	case err == nil:
		return resp, nil
	case Unreachable(err):
		return nil, connect.NewError(connect.CodeUnavailable, err)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, connect.NewError(connect.CodeDeadlineExceeded, err)
	case errors.Is(err, context.Canceled):
		return nil, connect.NewError(connect.CodeCanceled, err)
	default:
		return nil, connect.NewError(connect.CodeInternal, err)
	}
}

func (s *service) answer(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	resp, err := s.processor.Process(ctx, req)
	if size := proto.Size(resp); err == nil && size > process.MaxMessageBytes {
		// Said here and not by a code: RESOURCE_EXHAUSTED would mean that the request was never looked at.
		return failed(Fail(process.ReasonBadResponse, "the answer has %d bytes, at most %d", size, process.MaxMessageBytes).
			NonRetryable().Failure), nil
	}
	return resp, err
}

// encoding is how a plain POST is read and its answer written.
type encoding struct {
	contentType string
	marshal     func(proto.Message) ([]byte, error)
	unmarshal   func([]byte, proto.Message) error
}

var (
	jsonEncoding    = encoding{"application/json", protojson.Marshal, protojson.Unmarshal}
	msgpackEncoding = encoding{"application/msgpack", msgpack.Marshal, msgpack.Unmarshal}
)

// servePlain answers the plain POST of ENCODING_JSON and ENCODING_MSGPACK.
func (s *service) servePlain(w http.ResponseWriter, r *http.Request) {
	in, known := encodingOf(r)
	if !known {
		http.Error(w, "the content type must be application/json or application/msgpack", http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPlainBytes))
	if err != nil {
		status := http.StatusBadRequest
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, "read the request: "+err.Error(), status)
		return
	}
	req := &progressorv1.ProcessRequest{}
	if err := in.unmarshal(body, req); err != nil {
		http.Error(w, "read the ProcessRequest: "+err.Error(), http.StatusBadRequest)
		return
	}
	resp, err := s.answer(r.Context(), req)
	var text []byte
	if err == nil {
		text, err = in.marshal(resp)
	}
	if err != nil {
		http.Error(w, err.Error(), plainStatus(err))
		return
	}
	w.Header().Set("Content-Type", in.contentType)
	_, _ = w.Write(text) // the engine went away: it has its own error for that
}

// plainStatus is the HTTP status of an attempt that has no answer: 503 alone tells the engine to try it again.
func plainStatus(err error) int {
	switch {
	case Unreachable(err):
		return http.StatusServiceUnavailable
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}

// encodingOf is the encoding that a request says it is in.
func encodingOf(r *http.Request) (in encoding, known bool) {
	mediaType, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil:
		return encoding{}, false
	case mediaType == msgpackEncoding.contentType:
		return msgpackEncoding, true
	}
	charset, ok := params["charset"]
	return jsonEncoding, mediaType == jsonEncoding.contentType && (!ok || strings.EqualFold(charset, "utf-8"))
}

// strictJSON is Connect's JSON codec without its leniency: Connect's own drops fields that it does not know.
type strictJSON string

func (c strictJSON) Name() string { return string(c) }

func (strictJSON) Marshal(m any) ([]byte, error) { return protojson.Marshal(m.(proto.Message)) }

func (strictJSON) Unmarshal(text []byte, m any) error {
	return protojson.Unmarshal(text, m.(proto.Message))
}
