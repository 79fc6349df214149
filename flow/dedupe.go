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

// maxDedupeKey is the maximum length of a dedupe key in bytes. A longer key is replaced by its
// digest. A row of a B-tree index has room for 2,704 bytes.
const maxDedupeKey = 512

// dedupeKeys checks the dedupe keys and returns them sorted, because their order does not matter.
// The default is scope and scope_id.
func (c *compiler) dedupeKeys(keys []string) []string {
	if len(keys) == 0 {
		return []string{"scope", "scope_id"}
	}
	for i, key := range keys {
		path := fmt.Sprintf("dedupe_keys[%d]", i)
		switch {
		case key == "": // the proto rules report it
		case slices.Contains(strings.Split(key, "."), ""):
			c.add(path, "%.100q is not a path: use scope, scope_id or a field of the payload, such as user.id", key)
		case slices.Contains(keys[:i], key):
			c.add(path, "repeats %s", key)
		}
	}
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	return sorted
}

// DedupeKey returns the key that two runs of the template share if they are duplicates: the JSON of
// the values by name, or its digest. It returns "" if all values are empty (missing, null, "", {}
// or []). Such a run is never a duplicate.
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
	if err := encoder.Encode(values); err != nil { // cannot happen: the values were decoded from JSON
		return fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Append(nil, values)))
	}
	key := strings.TrimSuffix(b.String(), "\n")
	if len(key) > maxDedupeKey {
		return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(key)))
	}
	return key
}

// payloadAt returns a field of the payload, or nil if it is missing.
func payloadAt(v *structpb.Value, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		v = v.GetStructValue().GetFields()[name]
	}
	return canonical(process.PlainNumbers(v.AsInterface()))
}

// canonical normalizes numbers: -0 becomes 0.
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
