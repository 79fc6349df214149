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
	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// MaxRequestBytes is the maximum size of a request that a handler reads. It allows for a plain POST
// in JSON, where payloads are base64: four bytes for three.
const MaxRequestBytes = process.MaxMessageBytes / 3 * 4

// compressFrom is the minimum size of compressed answers. Only clients that request compression get
// compressed answers. The engine does not request it.
const compressFrom = 16 << 10

// Option configures Handler and Serve.
type Option func(*options)

type options struct {
	logger      *slog.Logger
	stopTimeout time.Duration
	middleware  []func(http.Handler) http.Handler
	tls         *tls.Config
	payloads    *codec.Payloads  // nil without WithCodec
	checkpoints CheckpointSender // nil without WithCheckpoints
	parking     *Parking         // nil without WithParking
}

func newOptions(opts []Option) options {
	o := options{logger: slog.Default(), stopTimeout: 30 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// WithLogger sets the logger for panics and errors of the server; the default is slog.Default().
func WithLogger(logger *slog.Logger) Option {
	return func(o *options) { o.logger = logger }
}

// WithStopTimeout sets how long Serve waits for running tasks after its context has ended; the
// default is 30 s. With 0 or less they are cut off at once.
func WithStopTimeout(d time.Duration) Option {
	return func(o *options) { o.stopTimeout = d }
}

// WithMiddleware wraps the handler; the first middleware is the outermost. Use it to check the
// headers that the configuration of the namespace adds, such as Authorization.
func WithMiddleware(wrap func(http.Handler) http.Handler) Option {
	return func(o *options) { o.middleware = append(o.middleware, wrap) }
}

// WithTLS makes Serve use TLS (HTTP/1.1 and HTTP/2) with this configuration. The default is no TLS.
func WithTLS(config *tls.Config) Option {
	return func(o *options) { o.tls = config }
}

// Handler returns an http.Handler that serves p in all encodings and protocols of the engine:
//
//   - Connect, gRPC and gRPC-Web at /progressor.v1.ProcessorService/. gRPC needs a server with
//     HTTP/2, without TLS by http.Protocols.SetUnencryptedHTTP2; Serve enables it.
//   - Plain JSON by POST at /: the body is a ProcessRequest in protobuf's JSON, the answer a
//     ProcessResponse.
//   - The same in MessagePack (application/msgpack) at either path.
//
// Messages have at most 16 MiB after decompression. Unknown fields and enum names in JSON and
// MessagePack are errors. Handler guards p (see Guard). If the engine traces, ctx carries the span
// of the attempt, so that spans started in it are its children. A span set by middleware takes
// precedence.
func Handler(p Processor, opts ...Option) http.Handler {
	o := newOptions(opts)
	if o.payloads != nil {
		p = &coded{Guard(&private{p}, o.logger), o.payloads}
	}
	if o.checkpoints != nil {
		p = &pushed{p, o.checkpoints, o.payloads}
	}
	p = &parks{Guard(p, o.logger), o.parking}
	served := &service{processor: p}
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

// traced adds the span that the request names, if any, to the request's context.
func traced(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx := tracing.Extract(r.Context(), r.Header); ctx != r.Context() {
			r = r.WithContext(ctx)
		}
		h.ServeHTTP(w, r)
	})
}

// service adapts a Processor to Connect's handler: errors become codes, and answers that are too
// large to send become failures.
type service struct{ processor Processor }

func (s *service) Process(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
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
		// The code RESOURCE_EXHAUSTED would mean that the request did not reach user code.
		return failed(Fail(process.ReasonBadResponse, "the answer must have at most %d bytes (got %d)",
			process.MaxMessageBytes, size).
			NonRetryable().Failure), nil
	}
	return resp, err
}

// encoding is how plain POST requests are decoded and their answers encoded.
type encoding struct {
	contentType string
	marshal     func(proto.Message) ([]byte, error)
	unmarshal   func([]byte, proto.Message) error
}

var (
	jsonEncoding    = encoding{"application/json", protojson.Marshal, protojson.Unmarshal}
	msgpackEncoding = encoding{"application/msgpack", msgpack.Marshal, msgpack.Unmarshal}
)

// servePlain serves the plain POST requests of ENCODING_JSON and ENCODING_MSGPACK.
func (s *service) servePlain(w http.ResponseWriter, r *http.Request) {
	in, known := encodingOf(r)
	if !known {
		http.Error(w, "the content type must be application/json or application/msgpack",
			http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequestBytes))
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
	_, _ = w.Write(text) // the engine reports a lost answer itself
}

// plainStatus returns the HTTP status for an attempt without an answer. Among these statuses, only
// 503 makes the engine retry.
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

// encodingOf returns the encoding of a request, from its content type.
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

// strictJSON is Connect's JSON codec, but unknown fields are errors.
type strictJSON string

func (c strictJSON) Name() string { return string(c) }

func (strictJSON) Marshal(m any) ([]byte, error) { return protojson.Marshal(m.(proto.Message)) }

func (strictJSON) Unmarshal(text []byte, m any) error {
	return protojson.Unmarshal(text, m.(proto.Message))
}
