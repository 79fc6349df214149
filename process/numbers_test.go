package process_test

import (
	"encoding/json"
	"testing"

	"github.com/progressor-engine/progressor/process"
)

func TestPlainNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"$float": 1200}`:                      `1200`,
		`{"$float": "-0"}`:                      `0`,
		`[{"a": {"$float": 1}}, {"$float": 2}]`: `[{"a":1},2]`,
		`{"$float": "NaN"}`:                     `{"$float":"NaN"}`,
		`{"$$float": 1}`:                        `{"$$float":1}`,
		`{"$float": 1, "a": 2}`:                 `{"$float":1,"a":2}`,
		`null`:                                  `null`,
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(process.PlainNumbers(v)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}
