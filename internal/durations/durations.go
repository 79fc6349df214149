package durations

import (
	"fmt"
	"strings"
	"time"
)

// Positive is the error text for a duration that must be positive, but is not.
const Positive = "must be a positive duration, such as 30s"

// Exact formats a duration without rounding and without trailing zeros: 1h, not 1h0m0s.
func Exact(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if rest, ok := strings.CutSuffix(text, zero); ok {
			text = rest + zero[:1]
		}
	}
	return text
}

// Rounded formats a measured duration with at most two units. A negative duration, which different
// clocks can cause, is 0s.
func Rounded(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return Exact(d.Round(100 * time.Millisecond))
	case d < time.Hour:
		return Exact(d.Round(time.Second))
	case d < 24*time.Hour:
		return Exact(d.Round(time.Minute))
	}
	days, hours := d/(24*time.Hour), d%(24*time.Hour)/time.Hour
	if hours == 0 {
		return fmt.Sprintf("%dd", days)
	}
	return fmt.Sprintf("%dd%dh", days, hours)
}
