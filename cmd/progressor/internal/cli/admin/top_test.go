package admin

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// On a narrow terminal, top shows the newest samples, and the counts of processes before columns
// without counts.
func TestTopOnATerminal(t *testing.T) {
	o := &progressorv1.GetOverviewResponse{Namespaces: []*progressorv1.NamespaceOverview{{Namespace: "demo",
		CountByStatus: map[string]int64{"error": 1, "completed": 120, "running": 15}}}}
	for n := range 60 {
		o.Samples = append(o.Samples, &progressorv1.OverviewSample{TasksPerSecond: float64(n)})
	}
	var b strings.Builder
	size := func() (columns, lines int) { return 80, 24 }
	if err := drawTop(output.Stream{Writer: &b, Style: output.Style{Size: size}}, o, nil, false); err != nil {
		t.Fatal(err)
	}
	clitest.WantLines(t, b.String(), "NAMESPACE PROCESSES INTERNAL RUNNABLE OLDEST\n",
		"demo error 1, running 15, completed 120 0 0 0s\n")
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, sparkTitle) && !strings.HasSuffix(line, "█") || utf8.RuneCountInString(line) > 80 {
			t.Errorf("%q", line)
		}
	}
	o.Namespaces[0].FailingCrons = 2
	b.Reset()
	if err := drawTop(output.Stream{Writer: &b, Style: output.Style{Size: size}}, o, nil, false); err != nil {
		t.Fatal(err)
	}
	clitest.WantLines(t, b.String(), "FAILING CRONS\n")
}

func TestSparkline(t *testing.T) {
	long := make([]float64, 100)
	long[99] = 7
	for _, c := range []struct {
		values []float64
		want   string
	}{
		{nil, ""},
		{[]float64{0, 0}, ""},
		{[]float64{0, 1, 2, 4}, "▁▃▅█"},
		{long, strings.Repeat("▁", 59) + "█"},
	} {
		if got := sparkline(c.values, sparkWidth); got != c.want {
			t.Errorf("%v: %s, want %s", c.values, got, c.want)
		}
	}
}
