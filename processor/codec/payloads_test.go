package codec_test

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func value(t *testing.T, text string) *structpb.Value {
	t.Helper()
	v := new(structpb.Value)
	if err := v.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return v
}

func encodeValue(t *testing.T, p *codec.Payloads, text string) *structpb.Value {
	t.Helper()
	v, err := p.EncodeValue(t.Context(), value(t, text), "")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestBytes(t *testing.T) {
	t.Parallel()
	p := codec.NewPayloads(newAESGCM(t, "k1"))
	for _, purpose := range []codec.Purpose{codec.State, codec.Event, codec.Context, codec.Message} {
		for _, content := range []string{"tea", `{"$encoded":"x"}`, "\xff\x00", " "} {
			encoded, err := p.EncodeBytes(t.Context(), purpose, []byte(content), "")
			if err != nil {
				t.Fatal(err)
			}
			if isJSON := bytes.HasPrefix(encoded, []byte(`{"$encoded":"`)); isJSON != (purpose == codec.Message) {
				t.Errorf("%s: %q", purpose, encoded)
			}
			decoded, err := p.DecodeBytes(t.Context(), purpose, encoded)
			if err != nil || string(decoded) != content {
				t.Errorf("%s: got %q, %v, want %q", purpose, decoded, err, content)
			}
		}
		for _, none := range [][]byte{nil, {}} {
			encoded, err := p.EncodeBytes(t.Context(), purpose, none, "")
			if err != nil || len(encoded) != 0 {
				t.Errorf("%s: nothing becomes %q, %v", purpose, encoded, err)
			}
			decoded, err := p.DecodeBytes(t.Context(), purpose, none)
			if err != nil || len(decoded) != 0 {
				t.Errorf("%s: an empty payload is decoded to %q, %v", purpose, decoded, err)
			}
		}
	}
}

// DecodeOnly encodes nothing, and reads both encoded and plain payloads.
func TestDecodeOnly(t *testing.T) {
	t.Parallel()
	p := codec.NewPayloads(newAESGCM(t, "k1"), codec.DecodeOnly())
	m := &progressorv1.EnqueueRequest{Args: structpb.NewStringValue("tea")}
	if encoded, err := p.Encode(t.Context(), m); err != nil || !proto.Equal(encoded, m) {
		t.Errorf("a message becomes %v, %v", encoded, err)
	}
	if encoded, err := p.EncodeBytes(t.Context(), codec.State, []byte("tea"), ""); err != nil ||
		string(encoded) != "tea" {
		t.Errorf("bytes become %q, %v", encoded, err)
	}
	if encoded, err := p.EncodeValue(t.Context(), m.GetArgs(), ""); err != nil || encoded != m.GetArgs() {
		t.Errorf("a value becomes %v, %v", encoded, err)
	}
	stored := encode(t, newAESGCM(t, "k1"), codec.Payload{Content: []byte("tea"), Purpose: codec.State})
	for _, text := range [][]byte{stored, []byte("tea")} {
		if decoded, err := p.DecodeBytes(t.Context(), codec.State, text); err != nil || string(decoded) != "tea" {
			t.Errorf("got %q, %v", decoded, err)
		}
	}
}

// An encoded payload can be decoded if its JSON contains spaces, because PostgreSQL writes the JSON
// of some columns with spaces.
func TestMessageWithSpaces(t *testing.T) {
	t.Parallel()
	p := codec.NewPayloads(newAESGCM(t, "k1"))
	encoded, err := p.EncodeBytes(t.Context(), codec.Message, []byte("tea"), "")
	if err != nil {
		t.Fatal(err)
	}
	encoded = bytes.Replace(encoded, []byte(":"), []byte(" : "), 1)
	if decoded, err := p.DecodeBytes(t.Context(), codec.Message, encoded); err != nil || string(decoded) != "tea" {
		t.Errorf("got %q, %v", decoded, err)
	}
}

// If a client sends no context, the engine stores the span of the request as the context. Such a
// span is accepted in the clear as a context, but not as a state.
func TestContextOfTheEngine(t *testing.T) {
	t.Parallel()
	p := codec.NewPayloads(newAESGCM(t, "k1"))
	const span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if decoded, err := p.DecodeBytes(t.Context(), codec.Context, []byte(span)); err != nil || string(decoded) != span {
		t.Errorf("got %q, %v", decoded, err)
	}
	if _, err := p.DecodeBytes(t.Context(), codec.State, []byte(span)); !errors.Is(err, codec.ErrPlain) {
		t.Errorf("as a state: %v", err)
	}
}

// A payload that is not encoded is an error, unless plain payloads are accepted.
func TestPlainPayloads(t *testing.T) {
	t.Parallel()
	strict := codec.NewPayloads(newAESGCM(t, "k1"))
	lenient := codec.NewPayloads(newAESGCM(t, "k1"), codec.AcceptPlain())
	for _, purpose := range []codec.Purpose{codec.State, codec.Event, codec.Context, codec.Message} {
		for _, text := range []string{"tea", `{"a":1}`, "\x00\xff", `{"$encoded": 1}`, `["$encoded"]`,
			`{"n": 9007199254740993, "$encoded": "x"}`} {
			if _, err := strict.DecodeBytes(t.Context(), purpose, []byte(text)); !errors.Is(err, codec.ErrPlain) {
				t.Errorf("%s %q: %v", purpose, text, err)
			}
			decoded, err := lenient.DecodeBytes(t.Context(), purpose, []byte(text))
			if err != nil || string(decoded) != text {
				t.Errorf("%s %q: got %q, %v", purpose, text, decoded, err)
			}
		}
	}
	for _, text := range []string{`1`, `"tea"`, `{}`, `[]`, `{"delete":null}`, `{"$encoded":1}`, `true`} {
		if _, err := strict.DecodeValue(t.Context(), value(t, text)); !errors.Is(err, codec.ErrPlain) {
			t.Errorf("%s: %v", text, err)
		}
		if decoded, err := lenient.DecodeValue(t.Context(), value(t, text)); err != nil ||
			!proto.Equal(decoded, value(t, text)) {
			t.Errorf("%s: got %v, %v", text, decoded, err)
		}
	}
	for _, p := range []*codec.Payloads{strict, lenient} {
		for _, none := range []*structpb.Value{nil, structpb.NewNullValue()} {
			encoded, err := p.EncodeValue(t.Context(), none, "")
			if err != nil || encoded != none {
				t.Errorf("%v becomes %v, %v", none, encoded, err)
			}
			if decoded, err := p.DecodeValue(t.Context(), none); err != nil || decoded != none {
				t.Errorf("%v is decoded to %v, %v", none, decoded, err)
			}
		}
		for _, text := range []string{`{"$encoded":"?"}`, `{"$encoded":"dGVh"}`, `{"$encoded":""}`} {
			if _, err := p.DecodeValue(t.Context(), value(t, text)); !errors.Is(err, codec.ErrInvalid) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// The engine passes messages on as JSON: as values, as texts, and as parts of other values.
func TestMessagesArePassedOn(t *testing.T) {
	t.Parallel()
	strict := codec.NewPayloads(newAESGCM(t, "k1"))
	lenient := codec.NewPayloads(newAESGCM(t, "k1"), codec.AcceptPlain())
	text, err := encodeValue(t, strict, `{"b":[1,"<&>"],"a":1.5}`).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if decoded, err := strict.DecodeBytes(t.Context(), codec.Message, text); err != nil ||
		string(decoded) != `{"a":1.5,"b":[1,"<&>"]}` {
		t.Errorf("a value as a text: %s, %v", decoded, err)
	}
	for content, want := range map[string]string{`{"a":1}`: `{"a":1}`, "tea": `"tea"`, "\xff": `"/w=="`} {
		encoded, err := strict.EncodeBytes(t.Context(), codec.Message, []byte(content), "")
		if err != nil {
			t.Fatal(err)
		}
		if decoded, err := strict.DecodeValue(t.Context(), value(t, string(encoded))); err != nil ||
			!proto.Equal(decoded, value(t, want)) {
			t.Errorf("a text as a value: %v, %v, want %s", decoded, err, want)
		}
	}
	inner := encodeValue(t, strict, `{"$encoded":"no"}`)
	whole := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"list": structpb.NewListValue(
			&structpb.ListValue{Values: []*structpb.Value{inner, structpb.NewBoolValue(true)}}),
	}})
	text, err = protojson.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"list":[{"$encoded":"no"},true]}`
	if decoded, err := lenient.DecodeBytes(t.Context(), codec.Message, text); err != nil || string(decoded) != want {
		t.Errorf("a part of a text: %s, %v", decoded, err)
	}
	if _, err := strict.DecodeValue(t.Context(), proto.CloneOf(whole)); !errors.Is(err, codec.ErrPlain) {
		t.Errorf("a part of a value: %v", err)
	}
	if decoded, err := lenient.DecodeValue(t.Context(), whole); err != nil || !proto.Equal(decoded, value(t, want)) {
		t.Errorf("a part of a value: %v, %v", decoded, err)
	}
}

// A repeated request must have the same encoded payloads if the engine compares the payloads of
// such requests.
func TestRepeatedRequests(t *testing.T) {
	t.Parallel()
	p := codec.NewPayloads(newAESGCM(t, "k1"))
	args, payload := []byte("tea"), structpb.NewStringValue("tea")
	unique := &progressorv1.JobOptions{Unique: &progressorv1.Unique{}}
	for name, c := range map[string]struct {
		request proto.Message
		repeats bool
	}{
		"start":         {&progressorv1.StartRequest{Args: args, IdempotencyKey: "k"}, true},
		"start, no key": {&progressorv1.StartRequest{Args: args}, false},
		"call":          {&progressorv1.CallRequest{Args: args, IdempotencyKey: "k"}, true},
		"run":           {&progressorv1.StartRunRequest{Payload: payload, IdempotencyKey: "k"}, true},
		"step": {&progressorv1.CompleteStepRequest{
			Outcome: &progressorv1.CompleteStepRequest_Result{Result: payload}}, true},
		"enqueue":          {&progressorv1.EnqueueRequest{Args: payload, IdempotencyKey: "k"}, true},
		"enqueue, no key":  {&progressorv1.EnqueueRequest{Args: payload}, false},
		"enqueue a unique": {&progressorv1.EnqueueRequest{Args: payload, Options: unique}, true},
		"enqueue a batch": {&progressorv1.EnqueueBatchRequest{Jobs: []*progressorv1.EnqueueRequest{
			{Args: payload, IdempotencyKey: "k"}, {Args: payload, IdempotencyKey: "l"}}}, true},
		"repair": {&progressorv1.RepairRequest{IdempotencyKey: "k", How: &progressorv1.RepairRequest_Processor{
			Processor: &progressorv1.RepairRequest_ProcessorRepair{Args: args}}}, true},
		"bulk": {&progressorv1.StartBulkRequest{Args: args, IdempotencyKey: "k"}, true},
	} {
		sent := proto.Clone(c.request)
		first, err := p.Encode(t.Context(), c.request)
		if err != nil {
			t.Fatal(err)
		}
		again, err := p.Encode(t.Context(), c.request)
		if err != nil || proto.Equal(first, again) != c.repeats {
			t.Errorf("%s: equal: %t, %v", name, !c.repeats, err)
		}
		if !proto.Equal(c.request, sent) {
			t.Errorf("%s: Encode has modified the request", name)
		}
	}
	batch, err := p.Encode(t.Context(), &progressorv1.EnqueueBatchRequest{Jobs: []*progressorv1.EnqueueRequest{
		{Args: payload, IdempotencyKey: "k"}, {Args: payload, IdempotencyKey: "l"}}})
	if err != nil {
		t.Fatal(err)
	}
	if jobs := batch.(*progressorv1.EnqueueBatchRequest).GetJobs(); proto.Equal(jobs[0].GetArgs(), jobs[1].GetArgs()) {
		t.Error("requests with other keys have the same payload")
	}
	// A cron enqueues the same unique job as a client.
	target, err := p.Encode(t.Context(), &progressorv1.EnqueueJobTarget{Name: "n", Args: payload, Options: unique})
	if err != nil {
		t.Fatal(err)
	}
	request, err := p.Encode(t.Context(), &progressorv1.EnqueueRequest{Name: "n", Args: payload, Options: unique})
	if err != nil || !proto.Equal(target.(*progressorv1.EnqueueJobTarget).GetArgs(),
		request.(*progressorv1.EnqueueRequest).GetArgs()) {
		t.Errorf("a cron enqueues another unique job: %v", err)
	}
}
