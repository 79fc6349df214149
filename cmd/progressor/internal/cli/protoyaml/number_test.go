package protoyaml

import (
	"strings"
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// YAML in a bytes field becomes JSON text, which keeps 64 bits.
func TestLongIntegersInBytes(t *testing.T) {
	read := func(number string) (string, error) {
		r := &progressorv1.StartRequest{}
		err := Unmarshal([]byte("args: &a {n: "+number+"}\n"), r)
		return string(r.GetArgs()), err
	}
	for _, number := range []string{"9007199254740993", "18446744073709551615", "-9223372036854775808"} {
		if text, err := read(number); err != nil || text != `{"n":`+number+`}` {
			t.Errorf("%s: %s, %v", number, text, err)
		}
	}
	for _, number := range []string{"18446744073709551616", "-18446744073709551616"} {
		if text, err := read(number); err == nil ||
			!strings.Contains(err.Error(), "line 1: args.n: the integer "+number+" has more than 64 bits") {
			t.Errorf("%s: %s, %v", number, text, err)
		}
	}
}

func TestArticle(t *testing.T) {
	if got := withArticle((&progressorv1.EnqueueRequest{}).ProtoReflect().Descriptor()); got != "an EnqueueRequest" {
		t.Error(got)
	}
}
