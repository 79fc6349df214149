package main

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

// What reads `-o json` of a list finds the list, where it is empty, too: `jq '.jobs[]'` took {} for an error.
func TestPrintEmptyList(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]proto.Message{
		`{"jobs":[]}`:                     &progressorv1.ListJobsResponse{},
		`{"jobs":[],"nextPageToken":"t"}`: &progressorv1.ListJobsResponse{NextPageToken: "t"},
		`{"jobs":[{"jobId":"a"}]}`:        &progressorv1.ListJobsResponse{Jobs: []*progressorv1.Job{{JobId: "a"}}},
		`{"job":{"jobId":"a"}}`:           &progressorv1.GetJobResponse{Job: &progressorv1.Job{JobId: "a"}},
	} {
		var b, compact bytes.Buffer
		if err := printMessage(&b, m); err != nil {
			t.Fatal(err)
		}
		if err := json.Compact(&compact, b.Bytes()); err != nil || compact.String() != want {
			t.Errorf("%q, %v; want %s", b.String(), err, want)
		}
	}
}

// Durations that were measured are rounded, those that were set are exact; neither has needless zeros.
func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration][2]string{
		0:                              {"", "0s"},
		-time.Second:                   {"-1s", "0s"},
		6_025_200 * time.Microsecond:   {"6.0252s", "6s"},
		2_040 * time.Microsecond:       {"2.04ms", "2ms"},
		500_388_783 * time.Microsecond: {"8m20.388783s", "8m20s"},
		time.Minute:                    {"1m", "1m"},
		10 * time.Minute:               {"10m", "10m"},
		time.Hour:                      {"1h", "1h"},
		time.Hour + 10*time.Minute:     {"1h10m", "1h10m"},
		time.Hour + time.Second:        {"1h0m1s", "1h"},
		24 * time.Hour:                 {"24h", "1d"},
		50*time.Hour + 50*time.Minute:  {"50h50m", "2d2h"},
	} {
		if got := [2]string{showDuration(d), showTook(d)}; got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

// A column of numbers stands to the right, also where its cells are texts.
func TestNumbersStandRight(t *testing.T) {
	var b strings.Builder
	if err := printRows(&b, table.Row{"bulk", "expected", "filter"}, []table.Row{{"b", "10,000", "x"}, {"c", "7", "y"}, {"d", "", "z"}}, "expected"); err != nil {
		t.Fatal(err)
	}
	if want := "BULK  EXPECTED  FILTER\nb       10,000  x\nc            7  y\nd               z\n"; b.String() != want {
		t.Errorf("%s", b.String())
	}
}
