package durations_test

import (
	"testing"
	"time"

	"github.com/progressor-engine/progressor/internal/durations"
)

// Measured durations are rounded, and configured durations are exact. Neither has trailing zero
// units.
func TestDurations(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration][2]string{
		0:                              {"0s", "0s"},
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
		if got := [2]string{durations.Exact(d), durations.Rounded(d)}; got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
