package flow

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
)

// maxExact is the largest integer up to which a double can represent every integer. Larger integers
// become strings, as in protobuf's JSON mapping.
const maxExact = 1<<53 - 1

var null = structpb.NewNullValue()

// conversion converts the results of expressions to JSON, using protobuf's mapping. It limits the
// size of the result, because a list can contain the payload 10,000 times at almost no cost in CEL.
// It computes a lower bound of the size of the JSON, in which a number counts as one byte and
// escapes do not count. As a result, it rejects only values that exceed the limit. The exact size
// must be checked when a value is stored.
type conversion struct {
	size, most int // in bytes
}

// value converts the result of an expression to JSON.
func (c *conversion) value(result any) (*structpb.Value, error) {
	if v, ok := result.(*structpb.Value); ok {
		return v, c.grow(minJSONSize(v))
	}
	return c.convert(result.(ref.Val), 0)
}

func (c *conversion) grow(n int) error {
	if c.size += n; c.size > c.most {
		return fmt.Errorf("is larger than %d bytes", c.most)
	}
	return nil
}

// minJSONSize returns a lower bound of the size of v as JSON.
func minJSONSize(v *structpb.Value) int {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return len(kind.StringValue) + len(`""`)
	case *structpb.Value_ListValue:
		size := len("[]") + max(0, len(kind.ListValue.GetValues())-1)
		for _, item := range kind.ListValue.GetValues() {
			size += minJSONSize(item)
		}
		return size
	case *structpb.Value_StructValue:
		size := len("{}") + max(0, len(kind.StructValue.GetFields())-1)
		for name, field := range kind.StructValue.GetFields() {
			size += len(name) + len(`"":`) + minJSONSize(field)
		}
		return size
	}
	return 1
}

// convert converts a value that is nested in depth objects and lists.
func (c *conversion) convert(v ref.Val, depth int) (*structpb.Value, error) {
	if depth > process.MaxJSONDepth {
		return nil, fmt.Errorf("is nested deeper than %d objects and lists", process.MaxJSONDepth)
	}
	if err := c.grow(1); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case types.Null:
		return null, nil
	case types.Bool:
		return structpb.NewBoolValue(bool(v)), nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, fmt.Errorf("is %v, which JSON cannot represent", float64(v))
		}
		return structpb.NewNumberValue(float64(v)), nil
	case types.Int:
		if v > maxExact || v < -maxExact {
			return structpb.NewStringValue(strconv.FormatInt(int64(v), 10)), nil
		}
		return structpb.NewNumberValue(float64(v)), nil
	case types.Uint:
		if v > maxExact {
			return structpb.NewStringValue(strconv.FormatUint(uint64(v), 10)), nil
		}
		return structpb.NewNumberValue(float64(v)), nil
	case types.String, types.Bytes, types.Timestamp, types.Duration:
		text, err := c.text(v)
		return structpb.NewStringValue(text), err
	case traits.Mapper:
		return c.object(v, depth)
	case traits.Lister:
		return c.list(v, depth)
	}
	return nil, fmt.Errorf("is %s, which JSON cannot represent", typeOf(v))
}

func (c *conversion) object(m traits.Mapper, depth int) (*structpb.Value, error) {
	object := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for i := m.Iterator(); i.HasNext() == types.True; {
		key := i.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf(
				"has the key %v of type %s, but the keys of a JSON object are strings: write string(…) around it",
				key.Value(), key.Type().TypeName())
		}
		if err := c.grow(len(name)); err != nil {
			return nil, err
		}
		converted, err := c.convert(m.Get(key), depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fieldPath("", string(name)), err)
		}
		object.Fields[string(name)] = converted
	}
	return structpb.NewStructValue(object), nil
}

func (c *conversion) list(l traits.Lister, depth int) (*structpb.Value, error) {
	list := &structpb.ListValue{}
	for i := l.Iterator(); i.HasNext() == types.True; {
		converted, err := c.convert(i.Next(), depth+1)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", len(list.Values), err)
		}
		list.Values = append(list.Values, converted)
	}
	return structpb.NewListValue(list), nil
}

// errNullText rejects null within a text, to prevent texts such as "Dear null".
var errNullText = errors.New("is null, which has no text: provide a default, as in ${EXPR != null ? EXPR : 'none'}")

// text converts the result of an expression that is part of a text.
func (c *conversion) text(result any) (string, error) {
	text, err := c.format(result)
	if err != nil {
		return "", err
	}
	return text, c.grow(len(text))
}

// format converts a result in the same way as text, but does not limit its size.
func (c *conversion) format(result any) (string, error) {
	switch v := result.(type) {
	case types.String:
		return string(v), nil
	case types.Int:
		return strconv.FormatInt(int64(v), 10), nil // with all digits: this is text, not a number in JSON
	case types.Uint:
		return strconv.FormatUint(uint64(v), 10), nil
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(v), nil
	case types.Timestamp:
		return protoText(timestamppb.New(v.Time))
	case types.Duration:
		return protoText(durationpb.New(v.Duration))
	}
	converted, err := c.value(result)
	if err != nil {
		return "", err
	}
	switch kind := converted.GetKind().(type) {
	case *structpb.Value_StringValue:
		return kind.StringValue, nil
	case *structpb.Value_NullValue, nil:
		return "", errNullText
	}
	return compact(converted)
}

// protoText formats a timestamp or a duration as protobuf's JSON mapping does.
func protoText(m proto.Message) (string, error) {
	text, err := protojson.Marshal(m)
	return strings.Trim(string(text), `"`), err
}

// compact formats v as JSON with sorted keys and without spaces. protojson adds spaces at random.
func compact(v *structpb.Value) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v.AsInterface()); err != nil {
		return "", fmt.Errorf("is not JSON: %w", err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// typeOf describes the type of a result for messages.
func typeOf(result any) string {
	switch v := result.(type) {
	case *structpb.Value:
		return kindOf(v)
	case types.Null:
		return "null"
	case ref.Val:
		return "of type " + v.Type().TypeName()
	}
	return fmt.Sprintf("of type %T", result)
}

// timeOf converts a CEL timestamp to a time in UTC.
func timeOf(t types.Timestamp) time.Time { return t.UTC() }
