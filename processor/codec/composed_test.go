package codec_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	undoID   = "~job/run-1/pay.undo"
	memberID = "~job/~/" + undoID + "/17"

	// longID is the ID of a member whose job has a long ID.
	longID = "~job/~/0123456789abcdef0123456789abcdef/17"
)

// jobsWith returns the messages in which a strict reader can get the args of a job.
func jobsWith(t *testing.T, id string, args *structpb.Value) []proto.Message {
	t.Helper()
	text, err := args.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	p := &progressorv1.Process{ProcessId: id, Kind: "job"}
	return []proto.Message{
		&progressorv1.ProcessRequest{Process: p, Args: text},
		&progressorv1.ProcessRequest{Process: p, JobArgs: proto.CloneOf(args)},
		&progressorv1.ListJobsResponse{Jobs: []*progressorv1.Job{{JobId: id, Args: proto.CloneOf(args)}}},
	}
}

// The engine composes the args of compensations, and the results of jobs for several workers. A
// strict reader accepts these forms, and only where the engine writes them.
func TestComposedPayloads(t *testing.T) {
	t.Parallel()
	p := codec.NewPayloads(newAESGCM(t, "k1"))
	object := func(members ...any) *structpb.Value {
		o := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for n := 0; n < len(members); n += 2 {
			o.Fields[members[n].(string)] = members[n+1].(*structpb.Value)
		}
		return structpb.NewStructValue(o)
	}
	list := func(items ...*structpb.Value) *structpb.Value {
		return structpb.NewListValue(&structpb.ListValue{Values: items})
	}
	tea, null, plain := encodeValue(t, p, `"tea"`), structpb.NewNullValue(), structpb.NewStringValue("tea")
	check := func(m proto.Message, accepted bool) {
		t.Helper()
		err := p.Decode(t.Context(), m)
		if accepted && (err != nil || strings.Contains(m.(interface{ String() string }).String(), codec.EncodedKey)) ||
			!accepted && !errors.Is(err, codec.ErrPlain) {
			t.Errorf("%v: accepted: %t, want %t: %v", m, err == nil, accepted, err)
		}
	}
	for _, c := range []struct {
		args     *structpb.Value
		accepted bool
	}{
		{object("input", tea, "result", tea), true},
		{object("input", null, "result", null), true},
		{object("input", tea, "result", list(tea, null)), true},
		{object("input", tea, "result", object("host-1", tea)), true},
		{object("input", plain, "result", tea), false},
		{object("input", list(tea), "result", tea), false},
		{object("input", tea, "result", plain), false},
		{object("input", tea, "result", list(plain)), false},
		{object("input", tea), false},
		{object("input", tea, "result", tea, "more", null), false},
		{list(tea), false},
	} {
		for _, id := range []string{undoID, undoID + "~2", memberID, longID} {
			for _, m := range jobsWith(t, id, c.args) {
				check(m, c.accepted)
			}
		}
		for _, id := range []string{"job-1", "~job/run-1/pay", "~job/run.undo/pay", "pay.undo", "~job/~/j.undo/1"} {
			for _, m := range jobsWith(t, id, c.args) {
				check(m, false)
			}
		}
	}
	several := &progressorv1.JobOptions{Workers: &progressorv1.WorkerGroup{Count: 2}}
	for _, c := range []struct {
		result   *structpb.Value
		accepted bool
	}{
		{object("host-1", tea, "host-2", null), true},
		{tea, true},
		{object("host-1", plain), false},
		{object("host-1", list(tea)), false},
		{list(tea), false},
		{plain, false},
	} {
		check(&progressorv1.FetchResultResponse{Result: proto.CloneOf(c.result)}, c.accepted)
		check(&progressorv1.Job{Options: several, Result: proto.CloneOf(c.result)}, c.accepted)
	}
	check(&progressorv1.Job{Result: object("host-1", tea)}, false)
	mixed, err := object("host-1", tea, "host-2", plain).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	check(&progressorv1.ChildEnd{ProcessId: "~flow/run-1", Response: mixed}, true)
	check(&progressorv1.ChildEnd{ProcessId: "~flow/run-1", Response: []byte(`"tea"`)}, true)
	check(&progressorv1.ChildEnd{ProcessId: "~job/run-1/pay", Response: mixed}, false)
	check(&progressorv1.ChildEnd{ProcessId: "run-1", Response: []byte(`"tea"`)}, false)
	check(&progressorv1.Job{Options: several, Args: object("host-1", tea)}, false)
}

// The args of a job without args are null and are not encoded. Null is accepted as a message, but
// not as a state.
func TestNullIsNotEncoded(t *testing.T) {
	t.Parallel()
	p := codec.NewPayloads(newAESGCM(t, "k1"))
	for _, text := range []string{"null", " null\n"} {
		decoded, err := p.DecodeBytes(t.Context(), codec.Message, []byte(text))
		if err != nil || string(decoded) != text {
			t.Errorf("%q is decoded to %q, %v", text, decoded, err)
		}
	}
	if _, err := p.DecodeBytes(t.Context(), codec.State, []byte("null")); !errors.Is(err, codec.ErrPlain) {
		t.Errorf("as a state: %v", err)
	}
}

// A request to a processor is decoded strictly, regardless of what the database contains about its
// process.
func TestForgedKind(t *testing.T) {
	t.Parallel()
	p := codec.NewPayloads(newAESGCM(t, "k1"))
	for _, process := range []*progressorv1.Process{
		{ProcessId: "p", Kind: "job", AuxState: []byte(`{"Paid":true}`)},
		{ProcessId: "~job/run-1/pay", AuxState: []byte(`{"Paid":true}`)},
		{ProcessId: "p", Kind: "job", History: []*progressorv1.Event{{Payload: []byte("paid")}}},
	} {
		request := &progressorv1.ProcessRequest{Process: process}
		for _, m := range []proto.Message{request, &progressorv1.Lease{Request: request}} {
			if err := p.Decode(t.Context(), m); !errors.Is(err, codec.ErrPlain) {
				t.Errorf("%v: %v", m, err)
			}
		}
	}
}
