package processor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
)

// checkMetadata checks the size of a JSON object and, as checkJSON does, its values.
func checkMetadata(field string, metadata *structpb.Struct) *process.InvalidError {
	if metadata == nil {
		return nil
	}
	if err := checkJSON(field, structpb.NewStructValue(metadata), 0); err != nil {
		return err
	}
	if size := jsonSize(metadata); size > process.MaxMetadataBytes {
		return tooLarge(field, size, process.MaxMetadataBytes)
	}
	return nil
}

// maxJSONGrowth is the maximum ratio of the size of an object in JSON to its size in protobuf. A
// control character takes six bytes in JSON and one in protobuf.
const maxJSONGrowth = 6

// jsonSize returns the size of an object as JSON without spaces. The size is exact only for objects
// near the limit.
func jsonSize(s *structpb.Struct) int {
	size := proto.Size(s)
	if size*maxJSONGrowth <= process.MaxMetadataBytes || size > process.MaxMessageBytes {
		return size
	}
	text, err := protojson.Marshal(s)
	var compact bytes.Buffer
	if err != nil || json.Compact(&compact, text) != nil {
		return size
	}
	return compact.Len()
}

// tooDeep reports whether a value has more nested objects and lists than allowed. depth counts the
// objects and lists around v. tooDeep is faster than checkJSON, because it builds no paths.
func tooDeep(v *structpb.Value, depth int) bool {
	fields, elements := v.GetStructValue(), v.GetListValue()
	if fields == nil && elements == nil {
		return false
	}
	if depth >= process.MaxJSONDepth {
		return true
	}
	for _, member := range fields.GetFields() {
		if tooDeep(member, depth+1) {
			return true
		}
	}
	return slices.ContainsFunc(elements.GetValues(), func(e *structpb.Value) bool { return tooDeep(e, depth+1) })
}

// checkJSON rejects values that JSON cannot express or that are nested too deeply. For the same
// value it always returns the same error, although the members of an object have no order. depth
// counts the objects and lists around v.
func checkJSON(field string, v *structpb.Value, depth int) *process.InvalidError {
	if holds := v.GetStructValue() != nil || v.GetListValue() != nil; holds && depth >= process.MaxJSONDepth {
		message := fmt.Sprintf("nested deeper than %d objects and lists", process.MaxJSONDepth)
		return &process.InvalidError{Field: field, Message: message, TooLarge: true}
	}
	var first *process.InvalidError
	switch kind := v.GetKind().(type) {
	case *structpb.Value_NullValue, *structpb.Value_BoolValue, *structpb.Value_StringValue:
	case *structpb.Value_NumberValue:
		if math.IsNaN(kind.NumberValue) || math.IsInf(kind.NumberValue, 0) {
			return invalid(field, "JSON has no %v", kind.NumberValue)
		}
	case *structpb.Value_StructValue:
		for name, member := range kind.StructValue.GetFields() {
			if err := checkJSON(field+"."+plain(name), member, depth+1); err != nil &&
				(first == nil || err.Field < first.Field) {
				first = err
			}
		}
	case *structpb.Value_ListValue:
		for i, element := range kind.ListValue.GetValues() {
			if err := checkJSON(fmt.Sprintf("%s[%d]", field, i), element, depth+1); err != nil {
				return err
			}
		}
	default:
		return invalid(field, "must be a JSON value: none of null, number, string, bool, object and list is set")
	}
	return first
}
