package flow

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
)

// maxDedupeKey bounds a key; of a longer one its digest stands there. A row of a B-tree has room for 2,704 bytes.
const maxDedupeKey = 512

// dedupeKeys checks what makes two runs the same. Their order does not matter.
func (c *compiler) dedupeKeys(keys []string) []string {
	if len(keys) == 0 {
		return []string{"scope", "scope_id"}
	}
	for i, key := range keys {
		path := fmt.Sprintf("dedupe_keys[%d]", i)
		switch {
		case key == "": // the contract says so
		case slices.Contains(strings.Split(key, "."), ""):
			c.add(path, "%.100q is no path: write scope, scope_id, or a field of the payload, as in user.id", key)
		case slices.Contains(keys[:i], key):
			c.add(path, "names %s a second time", key)
		}
	}
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	return sorted
}

// DedupeKey is what two runs of the template have in common that are the same: the JSON of the values by their names, or its digest. "":
// all values are empty (not there, null, "", {} or []), and the run is the same as no other.
func (t *Template) DedupeKey(scope, scopeID string, payload *structpb.Value) string {
	empty := true
	values := make(map[string]any, len(t.dedupe))
	for _, key := range t.dedupe {
		var v any
		switch key {
		case "scope":
			v = scope
		case "scope_id":
			v = scopeID
		default:
			v = payloadAt(payload, key)
		}
		values[key] = v
		empty = empty && isEmpty(v)
	}
	if empty {
		return ""
	}
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(values); err != nil { // of what came as JSON
		return fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Append(nil, values)))
	}
	key := strings.TrimSuffix(b.String(), "\n")
	if len(key) > maxDedupeKey {
		return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(key)))
	}
	return key
}

// payloadAt is a field of the payload, nil where it is not there.
func payloadAt(v *structpb.Value, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		v = v.GetStructValue().GetFields()[name]
	}
	return canonical(process.PlainNumbers(v.AsInterface()))
}

// canonical has one form for each number: -0 is 0.
func canonical(v any) any {
	switch v := v.(type) {
	case float64:
		if v == 0 {
			return 0.0
		}
		return v
	case []any:
		for i := range v {
			v[i] = canonical(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = canonical(v[name])
		}
	}
	return v
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}
