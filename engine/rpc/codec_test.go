package rpc

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// jsonCodec is the codec of JSON requests.
var jsonCodec = strictJSON{name: codecJSON}

// jsonTypes are the content types of JSON requests. All are decoded strictly.
var jsonTypes = []string{"application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8"}

func TestJSONIsReadStrictly(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	for _, c := range []struct {
		name, method, body string
		want               string // expected in the response; "" for status 200
	}{
		{"sound", "Call", `{"namespace":"n","processId":"p","args":"aGk="}`, ""},
		{"names of the proto files", "Call", `{"namespace":"n","process_id":"p"}`, ""},
		{"unknown field", "Call", `{"namespace":"n","processId":"p","nonsense":1}`, `unknown field \"nonsense\"`},
		{"unknown nested field", "Call", `{"namespace":"n","processId":"p","range":{"limt":1}}`,
			`unknown field \"limt\"`},
		{"unknown enum name", "Call", `{"namespace":"n","processId":"p","wait":"WAIT_FOREVER"}`,
			`invalid value for enum field wait: \"WAIT_FOREVER\"; use one of WAIT_COMPLETED, WAIT_ACCEPTED`},
		{"unknown enum number", "Call", `{"namespace":"n","processId":"p","wait":77}`,
			`wait: must be one of WAIT_UNSPECIFIED, WAIT_COMPLETED, WAIT_ACCEPTED`},
		{"field twice", "Call", `{"namespace":"n","namespace":"m","processId":"p"}`, `duplicate field \"namespace\"`},
		{"field twice by both names", "Call", `{"namespace":"n","processId":"p","process_id":"q"}`,
			`duplicate field \"process_id\"`},
		{"key twice in metadata", "Start", `{"namespace":"n","metadata":{"a":1,"a":2}}`, `duplicate map key \"a\"`},
		{"two fields of a oneof", "Repair", `{"namespace":"n","processId":"p","simple":{},"processor":{}}`,
			`is already set`},
		{"empty body", "Call", ``, `an empty body is not a JSON object`},
		{"not an object", "Call", `[]`, `unexpected token [`},
		{"text after the object", "Call", `{"namespace":"n","processId":"p"} {}`, `unexpected token {`},
		{"broken base64", "Call", `{"namespace":"n","processId":"p","args":"?"}`, `invalid value for bytes field args`},
		{"invalid UTF-8", "Call", "{\"namespace\":\"n\",\"processId\":\"a\xffb\"}", `process_id: not valid UTF-8`},
		{"invalid UTF-8 in metadata", "Start", "{\"namespace\":\"n\",\"metadata\":{\"a\":[\"\xff\"]}}",
			`metadata.a[0]: not valid UTF-8`},
		{"half a surrogate", "Call", `{"namespace":"n","processId":"\ud800"}`, `invalid`},
		{"NUL", "Call", `{"namespace":"n","processId":"a\u0000b"}`, `process_id: must not contain the character NUL`},
		{"NUL in metadata", "Start", `{"namespace":"n","metadata":{"a":{"b":["\u0000"]}}}`,
			`metadata.a.b[0]: must not contain the character NUL`},
		{"NUL in a key", "Start", `{"namespace":"n","metadata":{"a\u0000":1}}`, `must not contain the character NUL`},
		{"duration", "Call", `{"namespace":"n","processId":"p","timeout":"-1s"}`,
			`timeout: must be a duration from 0s`},
		{"time", "Start", `{"namespace":"n","startTime":"1969-12-31T23:59:59Z"}`,
			`start_time: must be a time from 1970`},
		{"deep metadata", "Start",
			`{"namespace":"n","metadata":{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`,
			`must not be nested deeper than 100`},
	} {
		for _, contentType := range jsonTypes {
			status, answer := post(t, s.url+"/progressor.v1.ProcessService/"+c.method, contentType, c.body)
			if c.want == "" && status != http.StatusOK {
				t.Errorf("%s, %s: got %d %s, want 200", c.name, contentType, status, answer)
			}
			if c.want != "" &&
				(status != http.StatusBadRequest || !strings.Contains(answer, c.want) ||
					!strings.Contains(answer, "invalid_argument")) {
				t.Errorf("%s, %s: got %d %s, want 400 with %s", c.name, contentType, status, answer, c.want)
			}
		}
	}
}

func TestIntegersThatWouldLoseDigitsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, path string }{
		{`{"n":1}`, ""},
		{`{"n":9007199254740992}`, ""},
		{`{"n":-9007199254740992}`, ""},
		{`{"n":9007199254740993}`, "metadata.n"},
		{`{"n":-9007199254740993}`, "metadata.n"},
		{`{"n":9007199254740993.0}`, "metadata.n"},
		{`{"n":123456789012345678901234567890}`, "metadata.n"},
		{`{"n":0.30000000000000004}`, ""},
		{`{"n":1.2345678901234567e+25}`, ""},
		{`{"n":"9007199254740993"}`, ""},
		{`{"9007199254740993":1}`, ""},
		{`{"a":{"b c":[1,{"d":9007199254740993}]}}`, `metadata.a["b c"][1].d`},
		{`{"a":[[9007199254740993]]}`, `metadata.a[0][0]`},
	} {
		var m progressorv1.StartRequest
		err := jsonCodec.Unmarshal([]byte(`{"namespace":"n","metadata":`+c.body+`}`), &m)
		switch {
		case c.path == "" && err != nil:
			t.Errorf("%s: got %v, want no error", c.body, err)
		case c.path != "" && (err == nil || !strings.HasPrefix(err.Error(), c.path+": the integer ")):
			t.Errorf("%s: got %v, want an error at %s", c.body, err, c.path)
		}
	}
	// For integer fields of the API, all digits are read.
	var await progressorv1.AwaitTaskRequest
	if err := jsonCodec.Unmarshal([]byte(`{"taskId":9007199254740993}`), &await); err != nil ||
		await.GetTaskId() != 9007199254740993 {
		t.Errorf("task_id: got %d, %v", await.GetTaskId(), err)
	}
	var put progressorv1.PutProcessRequest
	err := jsonCodec.Unmarshal(
		[]byte(`{"history":[{"eventId":9007199254740993,"metadata":{"n":9007199254740993}}]}`), &put)
	if err == nil || !strings.Contains(err.Error(), "history[0].metadata.n: ") {
		t.Errorf("metadata of an event: got %v", err)
	}
}

func FuzzStrictJSON(f *testing.F) {
	f.Add([]byte(`{"namespace":"n","metadata":{"a":[9007199254740993]}}`))
	f.Add([]byte("{\"namespace\":\"\xff\"}"))
	f.Add([]byte(`{"history":[{"metadata":{"a":{"b":1234567890123456789}}}]}`))
	valid, err := newValidation(services...)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m progressorv1.PutProcessRequest
		if jsonCodec.Unmarshal(data, &m) != nil {
			return
		}
		// A valid request can be encoded as JSON, and the result can be decoded again, except if an
		// integer is too large for a JSON number.
		if valid.check(&m) != nil {
			return
		}
		out, err := jsonCodec.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		var again progressorv1.PutProcessRequest
		if err := jsonCodec.Unmarshal(out, &again); err != nil && !strings.Contains(err.Error(), "2^53") {
			t.Fatal(err)
		}
		if !json.Valid(out) {
			t.Fatalf("not JSON: %s", out)
		}
	})
}

func TestBinaryRequestsAreCheckedAsWell(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	b, err := proto.Marshal(&progressorv1.CallRequest{Namespace: "n", ProcessId: "ab"})
	if err != nil {
		t.Fatal(err)
	}
	status, answer := post(t, s.url+callPath, "application/proto",
		string(bytes.Replace(b, []byte("ab"), []byte("a\xff"), 1)))
	if status != http.StatusBadRequest || !strings.Contains(answer, "process_id: not valid UTF-8") {
		t.Errorf("invalid UTF-8: got %d %s", status, answer)
	}
	b, err = proto.Marshal(&progressorv1.PutProcessRequest{
		Timers:  []*progressorv1.Timer{{Name: "a"}, {Name: "XY"}},
		Context: []byte{0xff}, // bytes may have any value
	})
	if err != nil {
		t.Fatal(err)
	}
	err = binary{}.Unmarshal(bytes.Replace(b, []byte("XY"), []byte("\xffY"), 1), &progressorv1.PutProcessRequest{})
	if err == nil || err.Error() != "timers[1].name: not valid UTF-8" {
		t.Errorf("a timer's name: got %v", err)
	}
	if err := (binary{}).Unmarshal([]byte{0xff}, &progressorv1.CallRequest{}); err == nil ||
		strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("garbage: got %v", err)
	}
	for name, client := range protocols(s.url) {
		_, err := client.Call(t.Context(), &progressorv1.CallRequest{Namespace: "n", ProcessId: "a\x00b"})
		requireCode(t, err, connect.CodeInvalidArgument)
		if d := detailOf(err); d.GetField() != "process_id" ||
			d.GetReason() != progressorv1.ErrorDetail_REASON_INVALID {
			t.Errorf("%s: got %v", name, text(d))
		}
	}
}

func TestMessagesOverTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	large := &progressorv1.CallRequest{Namespace: "n", ProcessId: "p", Args: make([]byte, 17<<20)}
	for name, client := range protocols(s.url) {
		if _, err := client.Call(t.Context(), large); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%s: got %v, want RESOURCE_EXHAUSTED", name, err)
		}
	}
	// The decoded size counts, not the compressed one.
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(bytes.Repeat([]byte(" "), 64<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+callPath, &bomb)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Encoding", "gzip")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusTooManyRequests { // Connect's status for RESOURCE_EXHAUSTED
		t.Errorf("gzip: got %d, want 429", answer.StatusCode)
	}
}

func TestEveryProtocolCarriesAnswersAndDetails(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	for name, client := range protocols(s.url) {
		a, err := client.Call(context.Background(),
			&progressorv1.CallRequest{Namespace: "n", ProcessId: "p", Args: []byte("hi")})
		if err != nil || string(a.GetResponse()) != "hi" {
			t.Errorf("%s: got %v, %v", name, a, err)
		}
		_, err = client.Call(context.Background(),
			&progressorv1.CallRequest{Namespace: "n", ProcessId: strings.Repeat("x", 257)})
		requireCode(t, err, connect.CodeInvalidArgument)
		d := detailOf(err)
		if d.GetReason() != progressorv1.ErrorDetail_REASON_TOO_LARGE || d.GetField() != "process_id" ||
			d.GetNamespace() != "n" {
			t.Errorf("%s: got %s", name, text(d))
		}
	}
}

func BenchmarkStrictJSON(b *testing.B) {
	body := []byte(`{"namespace":"bench","processId":"p-` + strconv.Itoa(12345) + `","args":"` +
		strings.Repeat("YWJj", 70) + `"}`)
	b.ReportAllocs()
	for b.Loop() {
		var m progressorv1.CallRequest
		if err := jsonCodec.Unmarshal(body, &m); err != nil {
			b.Fatal(err)
		}
	}
}
