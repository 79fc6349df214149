package format_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/sinks/format"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

var at = timestamppb.New(time.Date(2026, 11, 26, 15, 29, 41, 745_000_000, time.UTC))

// stored is an event with text that JSON and headers must encode.
func stored() *progressorv1.Change {
	return &progressorv1.Change{
		ChangeId: 42, Kind: progressorv1.ChangeKind_CHANGE_KIND_EVENT, Type: "stored", Namespace: "shop/eu",
		ProcessId: `Ä "<1>": 5%`, Time: at, EventId: 7, Payload: []byte("\x00{}"),
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"b": structpb.NewStringValue("<&>"), "a": structpb.NewNumberValue(1), "c": structpb.NewNullValue(),
		}},
	}
}

func failed() *progressorv1.Change {
	return &progressorv1.Change{
		ChangeId: 43, Kind: progressorv1.ChangeKind_CHANGE_KIND_LIFECYCLE, Type: "failed", Namespace: "orders",
		ProcessId: "order-1", Time: at, FromStatus: "ACTIVE", ToStatus: "FAILED", Reason: "no\nstock",
	}
}

func encode(t *testing.T, c *progressorv1.Change, f format.Format) *format.Message {
	t.Helper()
	m, err := format.Encode(c, f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func want(t *testing.T, what, got, wanted string) {
	t.Helper()
	if got != wanted {
		t.Errorf("%s:\n%s\nwant\n%s", what, got, wanted)
	}
}

func lines(headers []format.Header) string {
	var text strings.Builder
	for _, h := range headers {
		fmt.Fprintf(&text, "%s: %s\n", h.Name, h.Value)
	}
	return text.String()
}

const storedJSON = `{"changeId":"42","kind":"CHANGE_KIND_EVENT","type":"stored","namespace":"shop/eu",` +
	`"processId":"Ä \"<1>\": 5%","time":"2026-11-26T15:29:41.745Z","eventId":"7",` +
	`"metadata":{"a":1,"b":"<&>","c":null},"payload":"AHt9"}`

const failedJSON = `{"changeId":"43","kind":"CHANGE_KIND_LIFECYCLE","type":"failed","namespace":"orders",` +
	`"processId":"order-1","time":"2026-11-26T15:29:41.745Z","fromStatus":"ACTIVE","toStatus":"FAILED",` +
	`"reason":"no\nstock"}`

// A structured event is one JSON object. Its only header is the content type.
func TestStructured(t *testing.T) {
	t.Parallel()
	m := encode(t, stored(), format.Structured)
	want(t, "event", string(m.Body), `{"specversion":"1.0","id":"shop/eu:Ä \"<1>\": 5%:42",`+
		`"source":"/progressor/shop/eu","type":"progressor.event.stored","subject":"Ä \"<1>\": 5%",`+
		`"time":"2026-11-26T15:29:41.745Z","partitionkey":"shop/eu:Ä \"<1>\": 5%",`+
		`"datacontenttype":"application/json","data":`+storedJSON+`}`)
	want(t, "Kafka headers", lines(m.KafkaHeaders()), "content-type: application/cloudevents+json\n")
	want(t, "HTTP headers", lines(m.HTTPHeaders()), "Content-Type: application/cloudevents+json\n")
	m = encode(t, failed(), format.Structured)
	want(t, "lifecycle", string(m.Body), `{"specversion":"1.0","id":"orders:order-1:43",`+
		`"source":"/progressor/orders","type":"progressor.lifecycle.failed","subject":"order-1",`+
		`"time":"2026-11-26T15:29:41.745Z","partitionkey":"orders:order-1",`+
		`"datacontenttype":"application/json","data":`+failedJSON+`}`)
}

// In binary mode, the headers contain the attributes. Only HTTP headers are percent-encoded.
func TestBinary(t *testing.T) {
	t.Parallel()
	m := encode(t, stored(), format.Binary)
	want(t, "body", string(m.Body), storedJSON)
	want(t, "Kafka headers", lines(m.KafkaHeaders()), `content-type: application/json
ce_specversion: 1.0
ce_id: shop/eu:Ä "<1>": 5%:42
ce_source: /progressor/shop/eu
ce_type: progressor.event.stored
ce_subject: Ä "<1>": 5%
ce_time: 2026-11-26T15:29:41.745Z
ce_partitionkey: shop/eu:Ä "<1>": 5%
`)
	want(t, "HTTP headers", lines(m.HTTPHeaders()), `Content-Type: application/json
ce-specversion: 1.0
ce-id: shop/eu:%C3%84%20%22<1>%22:%205%25:42
ce-source: /progressor/shop/eu
ce-type: progressor.event.stored
ce-subject: %C3%84%20%22<1>%22:%205%25
ce-time: 2026-11-26T15:29:41.745Z
ce-partitionkey: shop/eu:%C3%84%20%22<1>%22:%205%25
`)
}

// The protobuf format has the same headers, and the change as a message.
func TestProtobuf(t *testing.T) {
	t.Parallel()
	for _, c := range []*progressorv1.Change{stored(), failed()} {
		m := encode(t, c, format.Protobuf)
		got := new(progressorv1.Change)
		if err := proto.Unmarshal(m.Body, got); err != nil || !proto.Equal(got, c) {
			t.Errorf("%v, %v", got, err)
		}
		binary := strings.Replace(lines(encode(t, c, format.Binary).KafkaHeaders()), "/json", "/protobuf", 1)
		want(t, "headers", lines(m.KafkaHeaders()), binary)
	}
}

// A change is always encoded in the same way, and different changes have different IDs.
func TestStableAndUnique(t *testing.T) {
	t.Parallel()
	for _, f := range []format.Format{format.Structured, format.Binary, format.Protobuf} {
		first := encode(t, stored(), f)
		for range 20 { // maps are read in a random order
			again := encode(t, stored(), f)
			want(t, "body", string(again.Body), string(first.Body))
		}
	}
	seen := map[string]bool{}
	for _, namespace := range []string{"a", "a/b"} {
		for _, process := range []string{"c", "b:c", "b/c", "c:1"} {
			for _, number := range []int64{1, 11} {
				seen[format.ID(&progressorv1.Change{Namespace: namespace, ProcessId: process, ChangeId: number})] = true
			}
		}
	}
	if len(seen) != 16 {
		t.Errorf("%d different IDs of 16 changes: %v", len(seen), seen)
	}
}

// Each kind has its own type of event.
func TestTypes(t *testing.T) {
	t.Parallel()
	for kind, wanted := range map[progressorv1.ChangeKind]string{
		progressorv1.ChangeKind_CHANGE_KIND_EVENT:     "progressor.event.x",
		progressorv1.ChangeKind_CHANGE_KIND_LIFECYCLE: "progressor.lifecycle.x",
		progressorv1.ChangeKind_CHANGE_KIND_JOB:       "progressor.job.x",
		progressorv1.ChangeKind_CHANGE_KIND_STEP:      "progressor.step.x",
		progressorv1.ChangeKind_CHANGE_KIND_RUN:       "progressor.run.x",
		progressorv1.ChangeKind_CHANGE_KIND_FIRE:      "progressor.fire.x",
	} {
		headers := lines(encode(t, &progressorv1.Change{Kind: kind, Type: "x"}, format.Binary).KafkaHeaders())
		if !strings.Contains(headers, "ce_type: "+wanted+"\n") {
			t.Errorf("%s:\n%s", kind, headers)
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	t.Parallel()
	_, err := format.Encode(stored(), 0)
	want(t, "error", fmt.Sprint(err), "format: must be Structured, Binary or Protobuf (got 0)")
}

// every returns a change with a value in each field.
func every(t *testing.T) *progressorv1.Change {
	t.Helper()
	c := failed()
	c.EventId, c.Payload = 7, []byte("\xff payload")
	c.ProcessId = "\x00\x1f\b\f\n\r\t\"\\/<>&\u007f\u2028Ä😀"
	c.Metadata, c.Details = stored().GetMetadata(), &structpb.Struct{}
	fields := c.ProtoReflect().Descriptor().Fields()
	for n := range fields.Len() {
		if !c.ProtoReflect().Has(fields.Get(n)) {
			t.Fatalf("field %s has no value", fields.Get(n).Name())
		}
	}
	return c
}

// The JSON of a change is the JSON of the API. The test uses changes with all fields, with all
// fields but one, and with a single field.
func TestJSONIsThatOfTheAPI(t *testing.T) {
	t.Parallel()
	fields := every(t).ProtoReflect().Descriptor().Fields()
	cases := []*progressorv1.Change{every(t), {}}
	for n := range fields.Len() {
		without := every(t)
		without.ProtoReflect().Clear(fields.Get(n))
		cases = append(cases, without)
	}
	for kind := range progressorv1.ChangeKind_name {
		cases = append(cases, &progressorv1.Change{Kind: progressorv1.ChangeKind(kind)})
	}
	for _, ns := range []int{0, 1, 1_000, 1_000_000, 120_000_000} {
		instant := time.Date(2026, 11, 26, 15, 29, 41, ns, time.UTC)
		cases = append(cases, &progressorv1.Change{Time: timestamppb.New(instant)})
	}
	for _, c := range cases {
		text, err := protojson.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var wanted bytes.Buffer
		if err := json.Compact(&wanted, text); err != nil {
			t.Fatal(err)
		}
		want(t, "binary", string(encode(t, c, format.Binary).Body), wanted.String())
		var event struct{ Data json.RawMessage }
		if err := json.Unmarshal(encode(t, c, format.Structured).Body, &event); err != nil {
			t.Fatal(err)
		}
		want(t, "structured", string(event.Data), wanted.String())
	}
}

// Text that is not UTF-8 is an error, because JSON cannot contain it.
func TestInvalidText(t *testing.T) {
	t.Parallel()
	for _, f := range []format.Format{format.Structured, format.Binary, format.Protobuf} {
		c := failed()
		c.Reason = "\xff"
		_, err := format.Encode(c, f)
		if err == nil || !strings.Contains(err.Error(), "encode change orders:order-1:43") {
			t.Errorf("format %d: %v", f, err)
		}
	}
}

func BenchmarkStructured(b *testing.B) {
	c := &progressorv1.Change{
		ChangeId: 4711, Kind: progressorv1.ChangeKind_CHANGE_KIND_EVENT, Type: "stored", Namespace: "bench",
		ProcessId: "bench-0000004711", Time: at, EventId: 12, Payload: bytes.Repeat([]byte{0xa5}, 200),
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := format.Encode(c, format.Structured); err != nil {
			b.Fatal(err)
		}
	}
}
