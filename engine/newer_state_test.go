package engine_test

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/engine"
)

// TestDecodeState checks that a state with a field that this version does not have is left to a
// newer version, at any depth, and that other errors are not.
func TestDecodeState(t *testing.T) {
	type inner struct {
		N int `json:"n"`
	}
	type state struct {
		Name  string           `json:"name"`
		Inner *inner           `json:"inner"`
		All   map[string]inner `json:"all"`
	}
	for text, field := range map[string]string{
		`{"name": "x", "inner": {"n": 1}, "all": {"a": {"n": 2}}}`: "",
		`{"name": "x", "novel": 1}`:                                `"novel"`,
		`{"inner": {"n": 1, "more": {}}}`:                          `"more"`,
		`{"all": {"a": {"deep": []}}}`:                             `"deep"`,
	} {
		err := engine.DecodeState([]byte(text), &state{})
		if engine.IsNewerState(err) != (field != "") ||
			field != "" && !strings.Contains(err.Error(), "the field "+field) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := engine.DecodeState([]byte(`{"name": 5}`), &state{}); err == nil || engine.IsNewerState(err) {
		t.Errorf("%v", err)
	}
}
