package rpc

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/internal/msgpack"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// postPacked sends a body and returns the response: its status, its content type, and its JSON
// form.
func postPacked(t *testing.T, url, contentType string, body []byte) (status int, answered, text string) {
	t.Helper()
	r, err := http.Post(url, contentType, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	v := &structpb.Value{}
	if msgpack.Unmarshal(b, v) != nil {
		return r.StatusCode, r.Header.Get("Content-Type"), string(b)
	}
	json, err := protojson.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, r.Header.Get("Content-Type"), strings.ReplaceAll(string(json), `": `, `":`)
}

func pack(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := packed{}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestMessagePack checks that a method accepts MessagePack and responds in it, including errors and
// their details.
func TestMessagePack(t *testing.T) {
	t.Parallel()
	h := echo()
	s := newSite(t, h)
	h.call = func(_ context.Context, r *progressorv1.CallRequest) (*progressorv1.CallResponse, error) {
		switch r.GetProcessId() {
		case "panic":
			panic("secret")
		case "gone":
			return nil, process.ErrProcessNotFound
		}
		return &progressorv1.CallResponse{TaskId: 1 << 60, Response: r.GetArgs()}, nil
	}
	object := func(text string) []byte {
		v := &structpb.Value{}
		if err := protojson.Unmarshal([]byte(text), v); err != nil {
			t.Fatal(err)
		}
		return pack(t, v)
	}
	for _, c := range []struct {
		name   string
		body   []byte
		status int
		want   []string
	}{
		{"call", pack(t, &progressorv1.CallRequest{Namespace: "n", ProcessId: "p", Args: []byte("hi")}), 200,
			[]string{`"response":{"$bin":"aGk="}`, `"taskId":{"$int":"1152921504606846976"}`}},
		{"unknown field", object(`{"nonsense":1}`), 400,
			[]string{`"code":"invalid_argument"`, `nonsense: unknown field: use one of namespace, `}},
		{"rule", object(`{"namespace":"n"}`), 400,
			[]string{`"code":"invalid_argument"`, `"reason":"REASON_INVALID"`, `"field":"process_id"`,
				`"type":"progressor.v1.ErrorDetail"`, `"value":{"$bin":"`}},
		{"number of an enum", object(`{"namespace":"n","processId":"p","wait":77}`), 400,
			[]string{`wait: must be one of WAIT_UNSPECIFIED`}},
		{"NUL", object(`{"namespace":"n","processId":"a\u0000"}`), 400,
			[]string{`process_id: must not contain the character NUL`}},
		{"engine", object(`{"namespace":"n","processId":"gone"}`), 404,
			[]string{`"code":"not_found"`, `"reason":"REASON_PROCESS_NOT_FOUND"`, `"processId":"gone"`}},
		{"panic", object(`{"namespace":"n","processId":"panic"}`), 500, []string{`"code":"internal"`, internalText}},
		{"too large", pack(t, &progressorv1.CallRequest{Args: make([]byte, 17<<20)}), 429,
			[]string{`"code":"resource_exhausted"`}},
		{"empty body", nil, 400, []string{`an empty body is not a MessagePack map`}},
	} {
		status, contentType, text := postPacked(t, s.url+callPath, typeMsgpack, c.body)
		if status != c.status || contentType != typeMsgpack || strings.Contains(text, "secret") {
			t.Errorf("%s: got %d %s %s", c.name, status, contentType, text)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: got %s, want %s", c.name, text, want)
			}
		}
	}
}

// TestMessagePackHasNoStreams checks that a stream in MessagePack is rejected with an error that
// lists the supported encodings.
func TestMessagePackHasNoStreams(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	for path, contentTypes := range map[string][]string{
		"/progressor.v1.ProcessService/WatchProcess": {typeMsgpack, "application/connect+msgpack",
			"application/grpc+msgpack", "application/grpc-web+msgpack"},
		callPath: {"application/connect+msgpack", "application/grpc+msgpack", "Application/MSGPACK; charset=utf-8"},
	} {
		for _, contentType := range contentTypes {
			status, answered, text := postPacked(t, s.url+path, contentType, []byte{0x80})
			if status != http.StatusUnsupportedMediaType || answered != typeMsgpack ||
				!strings.Contains(text, `"code":"unimplemented"`) ||
				!strings.Contains(text, "application/connect+json") {
				t.Errorf("%s, %s: got %d %s %s", path, contentType, status, answered, text)
			}
		}
	}
	stream, err := http.Post(s.url+"/progressor.v1.ProcessService/WatchProcess", typeMsgpack, strings.NewReader("\x80"))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Body.Close()
	if accepted := stream.Header.Get("Accept-Post"); strings.Contains(accepted, "msgpack") ||
		!strings.Contains(accepted, "application/connect+json,") {
		t.Errorf("Accept-Post: %s", accepted)
	}
	// A GET is rejected with the status 405, whatever its Content-Type.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+callPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", typeMsgpack)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: got %d", answer.StatusCode)
	}
}

// TestEveryMethodSpeaksMessagePack calls each method of every service. The methods have no
// implementation here.
func TestEveryMethodSpeaksMessagePack(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	for _, service := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			method := methods.Get(i)
			status, contentType, text := postPacked(t, s.url+"/"+service+"/"+string(method.Name()), typeMsgpack,
				[]byte{0x80})
			known := status == http.StatusBadRequest || status == http.StatusNotImplemented || status == http.StatusOK
			if method.IsStreamingServer() {
				known = status == http.StatusUnsupportedMediaType
			}
			if !known || contentType != typeMsgpack || text[0] != '{' {
				t.Errorf("%s: got %d %s %s", method.FullName(), status, contentType, text)
			}
		}
	}
}

// TestErrorsOfOthers checks that errors that do not come from Connect are not changed.
func TestErrorsOfOthers(t *testing.T) {
	t.Parallel()
	for _, body := range []string{``, `page not found`, `{}`, `[]`,
		`{"code":"internal","details":[{"type":"x","value":"?"}]}`} {
		if v, ok := errorValue([]byte(body)); ok {
			t.Errorf("%s: got %v", body, v)
		}
	}
	v, ok := errorValue([]byte(
		`{"code":"internal","details":[{"type":"of.nobody","value":"AQI"},` +
			`{"type":"progressor.v1.ErrorDetail","value":"/w"}]}`))
	if details := v.GetStructValue().GetFields()["details"].GetListValue().GetValues(); !ok || len(details) != 2 ||
		details[0].GetStructValue().GetFields()["debug"] != nil ||
		details[1].GetStructValue().GetFields()["debug"] != nil {
		t.Errorf("details of an unknown type: got %v, %v", v, ok)
	}
}
