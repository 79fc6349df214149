package admin

import (
	"strings"
	"testing"
)

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
		if got := sparkline(c.values); got != c.want {
			t.Errorf("%v: %s, want %s", c.values, got, c.want)
		}
	}
}
