package digits

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
)

// Check returns an error with the path of an integer beyond 2^53. It accepts strings, fractions and
// integers up to 2^53.
func TestCheck(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`9007199254740993`: "the integer 9007199254740993 is beyond 2^53 and would lose digits: write it as a string",
		`{"a b": [1, ` +
			`-9007199254740993]}`: `NAME["a b"][1]: the integer -9007199254740993 is beyond 2^53`,
		`[9007199254740993]`:                                                 "NAME[0]: the integer",
		`{"a":[{"b":-9007199254740993}]}`:                                    "NAME.a[0].b: ",
		`{"a":123456789012345678901234567890}`:                               "NAME.a: ",
		`{"a":1.5e300,"b":"1234567890123456"}`:                               "",
		`{"a":-9007199254740992}`:                                            "",
		`[1000000000000000, 18446744073709551615 ]`:                          "NAME[1]: ",
		`{"n": 9007199254740992}`:                                            "",
		`{"n": "9007199254740993", "9007199254740993": 0.12345678901234567}`: "",
	} {
		name := "NAME"
		if text[0] == '9' {
			name = ""
		}
		err := Check([]byte(text), name, &structpb.Value{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// hasLongDigits finds a sequence of 16 or more digits at any position.
func TestLongDigitsAreFoundAnywhere(t *testing.T) {
	t.Parallel()
	for length := range 40 {
		for before := range 40 {
			for _, run := range []int{0, 1, 15, 16, 17, 40} {
				data := strings.Repeat("x", before) + strings.Repeat("7", run) + strings.Repeat("x", length)
				if got, want := hasLongDigits([]byte(data)), run >= longDigits; got != want {
					t.Fatalf("%q: got %v, want %v", data, got, want)
				}
			}
		}
	}
	if data := strings.Repeat("123456789012345,", 100); hasLongDigits([]byte(data)) {
		t.Errorf("found 16 digits in %q, which has at most 15 in sequence", data)
	}
}
