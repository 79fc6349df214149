package cron

import (
	"slices"
	"testing"
)

// If the clock skips a fire time, the time at which it fires instead can also be excluded.
func TestExclusionsOfShiftedTimes(t *testing.T) {
	for _, test := range []struct {
		exclude string
		want    []string
	}{
		{"0 5 * * *", []string{"2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"}},
		{"* 3 * * *", []string{"2027-03-27T01:30:00Z", "2027-03-29T00:30:00Z"}},
		{"0 0 3 28 3 *", []string{"2027-03-27T01:30:00Z", "2027-03-29T00:30:00Z"}},
		{"30 2 28 3 *", []string{"2027-03-27T01:30:00Z", "2027-03-29T00:30:00Z"}},
	} {
		s := compile(t, Spec{Expressions: []string{"30 2 * * *"}, Timezone: "Europe/Berlin",
			Exclude: []string{test.exclude}})
		var forward, back []string
		for fire := range s.Between(at("2027-03-27 00:00:00"), at("2027-03-29 12:00:00")) {
			forward = append(forward, text(fire))
		}
		for fire := range s.Backward(at("2027-03-29 12:00:00"), at("2027-03-27 00:00:00")) {
			back = append(back, text(fire))
		}
		slices.Reverse(back)
		if !slices.Equal(forward, test.want) || !slices.Equal(back, test.want) {
			t.Errorf("without %s: %q, backward %q; want %q", test.exclude, forward, back, test.want)
		}
	}
}
