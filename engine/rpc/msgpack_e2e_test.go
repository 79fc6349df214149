package rpc

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/internal/msgpack"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// packedWorker is an HTTP processor that supports only MessagePack. It never answers requests with
// the args "hang", and reports when such a request is closed.
func packedWorker(t *testing.T, details *structpb.Value) (url string, began, closed chan string) {
	t.Helper()
	began, closed = make(chan string, 10), make(chan string, 10)
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		task := &progressorv1.ProcessRequest{}
		if err == nil {
			err = msgpack.Unmarshal(body, task)
		}
		if err != nil || r.Header.Get("Content-Type") != typeMsgpack {
			http.Error(w, "not as agreed", http.StatusBadRequest)
			return
		}
		result := &progressorv1.Result{Response: task.GetArgs(), Metadata: task.GetProcess().GetMetadata()}
		answer := &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: result}}
		switch string(task.GetArgs()) {
		case "hang":
			began <- task.GetProcess().GetProcessId()
			<-r.Context().Done()
			closed <- task.GetProcess().GetProcessId()
			return
		case "fail":
			failure := &progressorv1.Failure{Reason: "broken", Details: details}
			answer.Outcome = &progressorv1.ProcessResponse_Failure{Failure: failure}
		}
		w.Header().Set("Content-Type", typeMsgpack)
		text, err := msgpack.Marshal(answer)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(text)
	}))
	t.Cleanup(worker.Close)
	return worker.URL, began, closed
}

// TestMessagePackBothWays calls an engine in MessagePack. The engine then calls a processor in
// MessagePack. Data that JSON cannot represent arrives unchanged, through the database.
func TestMessagePackBothWays(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	value := func(text string) *structpb.Value {
		v := &structpb.Value{}
		if err := protojson.Unmarshal([]byte(text), v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	odd := value(`{"n":{"$int":"9007199254740993"},"f":{"$float":1},"z":{"$float":"-0"},"b":{"$bin":"/w=="},
		"e":{"$ext":[-1,"AAAAAQ=="]},
		"m":{"$map":[[1,"a"],[{"$bin":"AQ=="},null]]},"u":{"$$int":"5"}}`)
	url, began, closed := packedWorker(t, odd)
	ask := func(method string, request, answer proto.Message) (status int, failed *structpb.Value) {
		t.Helper()
		r, err := http.Post(w.url+"/progressor.v1."+method, typeMsgpack, bytes.NewReader(pack(t, request)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Body.Close() }()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		failed = &structpb.Value{}
		if r.StatusCode == http.StatusOK {
			err = msgpack.Unmarshal(body, answer)
		} else {
			err = msgpack.Unmarshal(body, failed)
		}
		if err != nil {
			t.Fatalf("%s: %d %x: %v", method, r.StatusCode, body, err)
		}
		return r.StatusCode, failed
	}
	ok := func(method string, request, answer proto.Message) {
		t.Helper()
		if status, failed := ask(method, request, answer); status != http.StatusOK {
			t.Fatalf("%s: %d %v", method, status, failed)
		}
	}
	ok("NamespaceService/PutNamespace",
		value(`{"namespace":{"namespace":"packed","stepTimeout":0.3,"retryPolicy":{"maxAttempts":1},
		"processor":{"connect":{"url":"`+url+`","encoding":"ENCODING_MSGPACK"}}}}`),
		&progressorv1.PutNamespaceResponse{})

	metadata := value(`{"n":{"$int":"18446744073709551615"},"b":{"$bin":"AQI="},"price":1,
		"schema":{"$ref":"#/a"}}`).GetStructValue()
	started := &progressorv1.StartResponse{}
	ok("ProcessService/Start",
		&progressorv1.StartRequest{Namespace: "packed", ProcessId: "p", Args: []byte{0, 0xff}, Metadata: metadata},
		started)
	if string(started.GetResponse()) != "\x00\xff" {
		t.Errorf("response %q", started.GetResponse())
	}
	got := &progressorv1.GetProcessResponse{}
	ok("ProcessService/GetProcess", &progressorv1.GetProcessRequest{Namespace: "packed", ProcessId: "p"}, got)
	if !proto.Equal(got.GetProcess().GetMetadata(), metadata) {
		t.Errorf("metadata %v, want %v", got.GetProcess().GetMetadata(), metadata)
	}
	status, failed := ask("ProcessService/Call",
		&progressorv1.CallRequest{Namespace: "packed", ProcessId: "p", Args: []byte("fail")}, nil)
	detail := failed.GetStructValue().GetFields()["details"].GetListValue().GetValues()[0]
	debug := detail.GetStructValue().GetFields()["debug"]
	details := debug.GetStructValue().GetFields()["failure"].GetStructValue().GetFields()["details"]
	if status != http.StatusConflict || !proto.Equal(details, odd) {
		t.Errorf("%d, details %v, want %v", status, details, odd)
	}

	// The request of an attempt is closed when the attempt ends at the step timeout, by a cancel
	// without a grace period, or by a removal.
	call := &progressorv1.CallRequest{Namespace: "packed", ProcessId: "late", Args: []byte("hang")}
	ok("ProcessService/Start", &progressorv1.StartRequest{Namespace: "packed", ProcessId: "late"}, started)
	if status, failed := ask("ProcessService/Call", call, nil); status == http.StatusOK {
		t.Errorf("a call that hangs: %v", failed)
	}
	if id := <-closed; id != "late" || <-began != "late" {
		t.Errorf("closed %s", id)
	}
	ok("NamespaceService/PutNamespace", value(`{"namespace":{"namespace":"slow","stepTimeout":3600,
		"processor":{"connect":{"url":"`+url+`","encoding":"ENCODING_MSGPACK"}}}}`),
		&progressorv1.PutNamespaceResponse{})
	ok("ProcessService/Start", &progressorv1.StartRequest{
		Namespace: "slow", ProcessId: "gone", Args: []byte("hang"), Wait: progressorv1.Wait_WAIT_ACCEPTED,
	}, started)
	<-began
	ok("ProcessService/CancelProcess", value(`{"namespace":"slow","processId":"gone","grace":0}`),
		&progressorv1.CancelProcessResponse{})
	if id := <-closed; id != "gone" {
		t.Errorf("closed %s", id)
	}
	ok("ProcessService/Start", &progressorv1.StartRequest{
		Namespace: "slow", ProcessId: "removed", Args: []byte("hang"), Wait: progressorv1.Wait_WAIT_ACCEPTED,
	}, started)
	<-began
	ok("ProcessService/RemoveProcess", &progressorv1.RemoveProcessRequest{Namespace: "slow", ProcessId: "removed"},
		&progressorv1.RemoveProcessResponse{})
	if id := <-closed; id != "removed" {
		t.Errorf("closed %s", id)
	}
}
