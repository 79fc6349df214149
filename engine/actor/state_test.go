package actor

import (
	"errors"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
)

// TestDecode checks that an unknown field of a state, at any depth, causes a failure that can be
// retried, because a newer version may know the field. Other errors cause failures that are not
// retryable.
func TestDecode(t *testing.T) {
	type inner struct {
		N int `json:"n"`
	}
	type state struct {
		Name  string           `json:"name"`
		Inner *inner           `json:"inner"`
		All   map[string]inner `json:"all"`
	}
	for text, field := range map[string]string{
		`{"name": "x", "novel": 1}`:       `"novel"`,
		`{"inner": {"n": 1, "more": {}}}`: `"more"`,
		`{"all": {"a": {"deep": []}}}`:    `"deep"`,
	} {
		failure := processor.FailureOf(BadState(Decode([]byte(text), &state{})))
		if failure.GetReason() != process.ReasonNewerState || failure.GetNonRetryable() ||
			!strings.Contains(failure.GetMessage(), "the field "+field) {
			t.Errorf("%s: %v", text, failure)
		}
	}
	text := `{"name": "x", "inner": {"n": 1}, "all": {"a": {"n": 2}}}`
	if err := BadState(Decode([]byte(text), &state{})); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	for _, err := range []error{Decode([]byte(`{"name": 5}`), &state{}), errors.New("it has no steps")} {
		if failure := processor.FailureOf(BadState(err)); failure.GetReason() != processor.ReasonBadState ||
			!failure.GetNonRetryable() {
			t.Errorf("%v: %v", err, failure)
		}
	}
}
