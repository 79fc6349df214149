package flow

import (
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// costEstimator estimates the costs of function calls for CEL. CEL itself counts each call as 1 if
// the types are only known at run time, as they are for all values from a payload. Without this
// estimate, payload.items.map(x, payload.text + payload.text) allocated 2 GB for 40,000 units.
type costEstimator struct{}

// textPart is the number of bytes of text that cost one unit.
const textPart = 10

func (costEstimator) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	cost := uint64(1)
	switch function {
	case operators.Equals, operators.NotEquals:
		cost += min(weight(args[0]), weight(args[1]))
	case operators.In, operators.OldIn:
		cost += weight(args[1])
		if _, isMap := args[1].(traits.Mapper); isMap {
			cost = 1
		}
	case overloads.Matches:
		cost += (textSize(args[0]) + textPart) / textPart * (textSize(args[1])/4 + 1)
	default:
		for _, arg := range args {
			cost += textSize(arg) / textPart
		}
	}
	return &cost
}

func textSize(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v))
	case types.Bytes:
		return uint64(len(v))
	}
	return 0
}

// weight returns the size of a value in units, including all nested values.
func weight(v ref.Val) uint64 {
	n := 1 + textSize(v)/textPart
	switch v := v.(type) {
	case traits.Mapper:
		if native, ok := v.Value().(map[string]any); ok {
			return n + weightOf(native)
		}
		for i := v.Iterator(); i.HasNext() == types.True; {
			key := i.Next()
			n += 1 + weight(v.Get(key))
		}
	case traits.Lister:
		if native, ok := v.Value().([]any); ok {
			return n + weightOf(native)
		}
		for i := v.Iterator(); i.HasNext() == types.True; {
			n += weight(i.Next())
		}
	}
	return n
}

func weightOf(v any) uint64 {
	n := uint64(1)
	switch v := v.(type) {
	case string:
		n += uint64(len(v)) / textPart
	case map[string]any:
		for _, field := range v {
			n += 1 + weightOf(field)
		}
	case []any:
		for _, item := range v {
			n += weightOf(item)
		}
	}
	return n
}
