package rpc

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// send posts a body, compressed with gzip, and returns the status and the response.
func send(t *testing.T, url, contentType string, body []byte) (int, []byte) {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, &packed)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Content-Encoding", "gzip")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, text
}

// TestExpandingRequests sends requests of a few kilobytes that have millions of values. They must
// be rejected before they need much memory.
func TestExpandingRequests(t *testing.T) { //nolint:paralleltest // measures memory
	s := newSite(t, echo())
	const size = process.MaxMessageBytes - 100
	list := &structpb.ListValue{Values: make([]*structpb.Value, size/4)}
	zero := structpb.NewNullValue()
	for i := range list.Values {
		list.Values[i] = zero
	}
	zeros, err := proto.Marshal(&progressorv1.StartRequest{Namespace: "n", ProcessId: "p", Metadata: &structpb.Struct{
		Fields: map[string]*structpb.Value{"a": structpb.NewListValue(list)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	json := func(element string) []byte {
		return []byte(`{"namespace":"n","processId":"p","metadata":{"a":[` +
			strings.TrimSuffix(strings.Repeat(element+",", size/(len(element)+1)), ",") + `]}}`)
	}
	maps := append([]byte("\x81\xa8metadata\x81\xa1a\xdd\x00\xff\x00\x00"), bytes.Repeat([]byte{0x80}, 0xff0000)...)
	for _, attack := range []struct {
		name, contentType string
		body              []byte
	}{
		{"numbers", "application/json", json("0")},
		{"lists", "application/json", json("[]")},
		{"objects", "application/json", json(`{"":{}}`)},
		{"MessagePack", "application/msgpack", maps},
		{"protobuf", "application/proto", zeros},
	} {
		t.Run(attack.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			status, text := send(t, s.url+"/progressor.v1.ProcessService/Start", attack.contentType, attack.body)
			runtime.ReadMemStats(&after)
			if status != http.StatusBadRequest || !bytes.Contains(text, []byte("more than 200000 values")) {
				t.Errorf("%d %.300s", status, text)
			}
			// The body itself is 16 MiB, in buffers that grow by doubling.
			if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 200 {
				t.Errorf("%d MiB were allocated", mib)
			}
		})
	}
	if _, body := get(t, s.url+"/metrics", ""); strings.Contains(body, `{reason="undecodable"} 0`) {
		t.Error("the attacks are not counted")
	}
}

// A batch may have more values than requests of other types.
func TestElementsOfABatch(t *testing.T) {
	t.Parallel()
	values := strings.TrimSuffix(strings.Repeat("0,", process.MaxElements+10), ",")
	batch := &progressorv1.EnqueueBatchRequest{}
	if err := jsonCodec.Unmarshal([]byte(`{"jobs":[{"args":[`+values+`]}]}`), batch); err != nil {
		t.Errorf("batch: %v", err)
	}
	err := jsonCodec.Unmarshal([]byte(`{"args":[`+values+`]}`), &progressorv1.EnqueueRequest{})
	if err == nil || !strings.Contains(err.Error(), "more than 200000 values") {
		t.Errorf("job: %v", err)
	}
}

// TestErrorsDoNotRepeatTheRequest sends huge values in every field that an error repeats.
func TestErrorsDoNotRepeatTheRequest(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	huge := strings.Repeat("1", 4<<20)
	const start = `{"namespace":"n","processId":"p",`
	deep := strings.Repeat(`{"`+strings.Repeat("k", 100)+`":`, 60) // the error names the path
	for name, body := range map[string]string{
		"number":          start + `"priority":` + huge + `}`,
		"text for number": start + `"priority":"` + huge + `x"}`,
		"field":           start + `"` + huge + `":1}`,
		"enum":            start + `"wait":"` + huge + `"}`,
		"duration":        start + `"timeout":"` + huge + `"}`,
		"time":            start + `"startTime":"` + huge + `"}`,
		"bytes":           start + `"args":"` + huge + `*"}`,
		"long integer":    start + `"metadata":{"a":` + huge + `}}`,
		"key":             start + `"metadata":{"` + huge + `":12345678901234567890}}`,
		"key with NUL":    start + `"metadata":{"` + huge + `\u0000":1}}`,
		"bad UTF-8":       start + `"metadata":{"` + huge + `":"` + "\xff" + `"}}`,
		"deep key":        start + `"metadata":` + deep + `12345678901234567890` + strings.Repeat("}", 61),
		"syntax":          start + huge + `}`,
		"process":         `{"namespace":"n","processId":"` + huge + `"}`,
		"namespace":       `{"namespace":"` + huge + `","processId":"p"}`,
		"cut":             start + `"args":"` + huge,
	} {
		status, text := send(t, s.url+"/progressor.v1.ProcessService/Start", "application/json", []byte(body))
		if status != http.StatusBadRequest || len(text) > 2<<10 {
			t.Errorf("%s: %d, %d bytes: %.200s", name, status, len(text), text)
		}
	}
	for name, body := range map[string]string{
		"field": "\x81\xdb" + length(huge) + huge + "\x01",
		"enum":  "\x81\xa4wait\xdb" + length(huge) + huge,
		"key":   "\x81\xa8metadata\x81\xdb" + length(huge) + huge + "\xc1",
	} {
		status, text := send(t, s.url+"/progressor.v1.ProcessService/Start", "application/msgpack", []byte(body))
		if status != http.StatusBadRequest || len(text) > 2<<10 {
			t.Errorf("MessagePack, %s: %d, %d bytes: %.200s", name, status, len(text), text)
		}
	}
}

// length returns the length of a text as 4 bytes.
func length(text string) string {
	n := len(text)
	return string([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}
