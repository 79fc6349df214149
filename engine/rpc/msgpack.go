package rpc

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/internal/msgpack"
)

const (
	// codecMsgpack is the name of the MessagePack codec in Connect.
	codecMsgpack = "msgpack"
	typeMsgpack  = "application/msgpack"
)

// packed is the MessagePack codec. It decodes as strictly as strictJSON.
type packed struct{ failed undecodable }

// Name returns the name of the codec.
func (packed) Name() string { return codecMsgpack }

// IsBinary returns true, because the encoding is not text.
func (packed) IsBinary() bool { return true }

// Marshal encodes a message.
func (packed) Marshal(message any) ([]byte, error) { return packed{}.MarshalAppend(nil, message) }

// MarshalAppend appends an encoded message to dst. Connect passes a pooled buffer.
func (packed) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, notProto(message)
	}
	return msgpack.MarshalAppend(dst, m)
}

// Unmarshal decodes a message.
func (p packed) Unmarshal(data []byte, message any) error {
	return p.failed.count(p.decode(data, message))
}

func (packed) decode(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return notProto(message)
	}
	return shortError(msgpack.UnmarshalMax(data, m, maxElements(m)))
}

// onlyUnary is the error for streams and gRPC requests in MessagePack.
const onlyUnary = "MessagePack is for unary methods, by POST with Content-Type application/msgpack: " +
	"use application/connect+json, application/connect+proto or gRPC for streams"

// packErrors converts the errors of MessagePack requests to MessagePack. Connect writes errors of
// unary methods as JSON, regardless of the codec.
func packErrors(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		contentType, _, _ := strings.Cut(strings.ToLower(r.Header.Get("Content-Type")), ";")
		switch strings.TrimSpace(contentType) {
		case typeMsgpack:
			held := &errorWriter{ResponseWriter: w}
			h.ServeHTTP(held, r)
			held.finish()
		case "application/connect+msgpack", "application/grpc+msgpack", "application/grpc-web+msgpack":
			(&errorWriter{ResponseWriter: w, status: http.StatusUnsupportedMediaType}).finish()
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// errorWriter buffers error responses until they are complete. Other responses pass unchanged.
type errorWriter struct {
	http.ResponseWriter
	status int // HTTP status of an error; otherwise 0
	body   bytes.Buffer
}

// Unwrap supports http.ResponseController.
func (w *errorWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *errorWriter) WriteHeader(status int) {
	if status == http.StatusOK {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.status = status
}

func (w *errorWriter) Write(b []byte) (int, error) {
	if w.status != 0 {
		return w.body.Write(b)
	}
	return w.ResponseWriter.Write(b)
}

// finish sends the buffered error.
func (w *errorWriter) finish() {
	if w.status == 0 {
		return
	}
	body := w.body.Bytes()
	if w.status == http.StatusUnsupportedMediaType {
		body = []byte(`{"code":"unimplemented","message":"` + onlyUnary + `"}`)
		// Connect lists every codec for every protocol.
		accepted := strings.Split(w.Header().Get("Accept-Post"), ", ")
		accepted = slices.DeleteFunc(accepted,
			func(name string) bool { return name == "" || strings.HasSuffix(name, "+"+codecMsgpack) })
		if w.Header().Del("Accept-Post"); len(accepted) > 0 {
			w.Header().Set("Accept-Post", strings.Join(accepted, ", "))
		}
	}
	if value, ok := errorValue(body); ok {
		if text, err := msgpack.Marshal(value); err == nil {
			body = text
			w.Header().Set("Content-Type", typeMsgpack)
			w.Header().Del("Content-Length")
		}
	}
	w.ResponseWriter.WriteHeader(w.status)
	_, _ = w.ResponseWriter.Write(body)
}

// errorValue converts an error of Connect to its MessagePack form. It has the code, message and
// details of the JSON form, except that the value of a detail has the type bin, and its debug form
// has the types of MessagePack. ok is false if body is not an error of Connect, for example a page
// of net/http.
func errorValue(body []byte) (value *structpb.Value, ok bool) {
	var said struct {
		Code    string
		Message string
		Details []struct{ Type, Value string }
	}
	if json.Unmarshal(body, &said) != nil || said.Code == "" {
		return nil, false
	}
	fields := map[string]*structpb.Value{"code": structpb.NewStringValue(said.Code)}
	if said.Message != "" {
		fields["message"] = structpb.NewStringValue(said.Message)
	}
	var details []*structpb.Value
	for _, d := range said.Details {
		b, err := base64.RawStdEncoding.DecodeString(d.Value)
		if err != nil {
			return nil, false
		}
		detail := map[string]*structpb.Value{
			"type": structpb.NewStringValue(d.Type),
			"value": object(
				map[string]*structpb.Value{"$bin": structpb.NewStringValue(base64.StdEncoding.EncodeToString(b))}),
		}
		if debug, ok := debugValue(d.Type, b); ok {
			detail["debug"] = debug
		}
		details = append(details, object(detail))
	}
	if len(details) > 0 {
		fields["details"] = structpb.NewListValue(&structpb.ListValue{Values: details})
	}
	return object(fields), true
}

// debugValue decodes a detail for clients without protobuf.
func debugValue(name string, b []byte) (*structpb.Value, bool) {
	typ, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		return nil, false
	}
	m, debug := typ.New().Interface(), &structpb.Value{}
	if proto.Unmarshal(b, m) != nil {
		return nil, false
	}
	text, err := msgpack.Marshal(m)
	return debug, err == nil && msgpack.Unmarshal(text, debug) == nil
}

func object(fields map[string]*structpb.Value) *structpb.Value {
	return structpb.NewStructValue(&structpb.Struct{Fields: fields})
}
