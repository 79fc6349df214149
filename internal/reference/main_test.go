package main

import (
	"slices"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestRules(t *testing.T) {
	for _, tt := range []struct {
		rules *validate.FieldRules
		want  []string
	}{
		{&validate.FieldRules{}, nil},
		{&validate.FieldRules{
			Type: &validate.FieldRules_String_{
				String_: &validate.StringRules{MinBytes: proto.Uint64(1), MaxBytes: proto.Uint64(256),
					Pattern: proto.String("^[a-z]+$")}}},
			[]string{"1–256 bytes", "`^[a-z]+$`"}},
		{&validate.FieldRules{
			Type: &validate.FieldRules_Bytes{Bytes: &validate.BytesRules{MaxLen: proto.Uint64(1 << 20)}}},
			[]string{"at most 1 MiB"}},
		{&validate.FieldRules{Type: &validate.FieldRules_Int32{Int32: &validate.Int32Rules{
			GreaterThan: &validate.Int32Rules_Gte{Gte: -1}, LessThan: &validate.Int32Rules_Lt{Lt: 10000}}}},
			[]string{"-1–10,000 (excluded)"}},
		{&validate.FieldRules{
			Type: &validate.FieldRules_Double{
				Double: &validate.DoubleRules{GreaterThan: &validate.DoubleRules_Gte{Gte: 0.5}}}},
			[]string{"at least 0.5"}},
		{&validate.FieldRules{
			Type: &validate.FieldRules_Duration{
				Duration: &validate.DurationRules{GreaterThan: &validate.DurationRules_Gte{Gte: durationpb.New(0)},
					LessThan: &validate.DurationRules_Lte{Lte: &durationpb.Duration{Seconds: 3153600000}}}}},
			[]string{"0s–100 years"}},
		{&validate.FieldRules{
			Type: &validate.FieldRules_Repeated{Repeated: &validate.RepeatedRules{MaxItems: proto.Uint64(100),
				Items: &validate.FieldRules{
					Type: &validate.FieldRules_String_{String_: &validate.StringRules{MaxLen: proto.Uint64(8)}}}}}},
			[]string{"at most 100 items", "each at most 8 characters"}},
	} {
		if got := formatRules(tt.rules); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q, want %q", tt.rules, got, tt.want)
		}
	}
}
