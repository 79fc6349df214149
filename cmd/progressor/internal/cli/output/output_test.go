package output

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/proto"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// With `-o json`, an empty list is printed as an empty list, because `jq '.jobs[]'` fails for {}.
func TestPrintEmptyList(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]proto.Message{
		`{"jobs":[]}`:                     &progressorv1.ListJobsResponse{},
		`{"jobs":[],"nextPageToken":"t"}`: &progressorv1.ListJobsResponse{NextPageToken: "t"},
		`{"jobs":[{"jobId":"a"}]}`:        &progressorv1.ListJobsResponse{Jobs: []*progressorv1.Job{{JobId: "a"}}},
		`{"job":{"jobId":"a"}}`:           &progressorv1.GetJobResponse{Job: &progressorv1.Job{JobId: "a"}},
	} {
		var b, compact bytes.Buffer
		if err := PrintMessage(&b, m); err != nil {
			t.Fatal(err)
		}
		if err := json.Compact(&compact, b.Bytes()); err != nil || compact.String() != want {
			t.Errorf("%q, %v; want %s", b.String(), err, want)
		}
	}
}

// Columns of numbers are aligned to the right, even if their cells are texts.
func TestNumbersAreRightAligned(t *testing.T) {
	var b strings.Builder
	if err := PrintRows(&b, table.Row{"bulk", "expected", "filter"},
		[]table.Row{{"b", "10,000", "x"}, {"c", "7", "y"}, {"d", "", "z"}}, "expected"); err != nil {
		t.Fatal(err)
	}
	if want := "BULK  EXPECTED  FILTER\nb       10,000  x\nc            7  y\nd               z\n"; b.String() != want {
		t.Errorf("%s", b.String())
	}
}

// A duration that is not set is not shown.
func TestShowDuration(t *testing.T) {
	if got := [2]string{Duration(0), Duration(time.Hour)}; got != [2]string{"", "1h"} {
		t.Errorf("%q", got)
	}
}

func TestShowPayload(t *testing.T) {
	tests := []struct {
		in    string
		limit int
		want  string
	}{
		{"", 0, ""},
		{`{"a": [1, 2]}`, 0, `{"a":[1,2]}`},
		{"plain text", 0, "plain text"},
		{"two\nlines", 0, `two\nlines`},
		{"\x1b[31mred", 0, "base64:G1szMW1yZWQ="},
		{"\"\u009b31m\"", 0, `"\u009b31m"`},
		{"\xff\xfe", 0, "base64://4="},
		{"aaaaaaaaaa", 4, "aaaa… (10 bytes)"},
	}
	for _, tt := range tests {
		if got := Payload([]byte(tt.in), tt.limit); got != tt.want {
			t.Errorf("showPayload(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}
