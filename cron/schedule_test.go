package cron

import (
	"slices"
	"sync"
	"testing"
	"time"
)

func at(text string) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05",
		"2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t
		}
	}
	panic("invalid time: " + text)
}

func compile(t testing.TB, spec Spec) *Schedule {
	t.Helper()
	s, err := Compile(spec)
	if err != nil {
		t.Fatalf("Compile(%+v): %v", spec, err)
	}
	return s
}

// firesOf lists n fire times after a local time of the spec's zone, as local times.
func firesOf(t testing.TB, spec Spec, after string, n int) []string {
	t.Helper()
	s := compile(t, spec)
	from, err := time.ParseInLocation("2006-01-02 15:04:05", after, s.Location())
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for fire := range s.Between(from.Add(time.Second), time.Unix(lastInstant, 0)) {
		if list = append(list, fire.In(s.Location()).Format("Mon 2006-01-02 15:04:05 -07")); len(list) == n {
			break
		}
	}
	return list
}

func TestDays(t *testing.T) {
	for _, test := range []struct {
		expression string
		after      string
		want       []string
	}{
		{"0 9 L * *", "2024-01-31 10:00:00", []string{"2024-02-29", "2024-03-31", "2024-04-30"}},
		{"0 9 L-3 * *", "2024-01-01 00:00:00", []string{"2024-01-28", "2024-02-26", "2024-03-28"}},
		{"0 9 L-30 * *", "2024-01-02 00:00:00", []string{"2024-03-01", "2024-05-01", "2024-07-01"}},
		{"0 9 LW * *", "2024-08-01 00:00:00", []string{"2024-08-30", "2024-09-30", "2024-10-31"}},
		{"0 9 15W * *", "2024-06-01 00:00:00", []string{"2024-06-14", "2024-07-15", "2024-08-15", "2024-09-16"}},
		{"0 9 1W * *", "2022-01-01 00:00:00", []string{"2022-01-03", "2022-02-01", "2022-03-01"}},
		{"0 9 31W * *", "2025-06-01 00:00:00",
			[]string{"2025-07-31", "2025-08-29", "2025-10-31", "2025-12-31", "2026-01-30"}},
		{"0 9 * * FRI#3", "2024-01-01 00:00:00", []string{"2024-01-19", "2024-02-16", "2024-03-15"}},
		{"0 9 * * 1#5", "2024-01-01 00:00:00",
			[]string{"2024-01-29", "2024-04-29", "2024-07-29", "2024-09-30", "2024-12-30"}},
		{"0 9 * * 6#4", "2024-08-02 00:00:00", []string{"2024-08-24", "2024-09-28", "2024-10-26", "2024-11-23"}},
		{"0 9 * * 5L", "2024-01-01 00:00:00", []string{"2024-01-26", "2024-02-23", "2024-03-29"}},
		{"0 9 * * 7L", "2024-01-01 00:00:00", []string{"2024-01-28", "2024-02-25"}},
		{"0 9 1,15W,L * *", "2024-06-01 10:00:00", []string{"2024-06-14", "2024-06-30", "2024-07-01", "2024-07-15"}},
		{"0 9 29 2 *", "2096-03-01 00:00:00", []string{"2104-02-29", "2108-02-29"}},
		{"0 9 13 * FRI", "2024-09-01 00:00:00",
			[]string{"2024-09-06", "2024-09-13", "2024-09-20", "2024-09-27", "2024-10-04", "2024-10-11", "2024-10-13"}},
		{"0 9 */2 * MON", "2024-09-01 00:00:00", []string{"2024-09-09", "2024-09-23", "2024-10-07"}},
		{"0 9 1-31/2 * MON", "2024-09-01 10:00:00", []string{"2024-09-02", "2024-09-03", "2024-09-05"}},
		{"0 9 ? * FRI-SUN", "2024-09-01 10:00:00", []string{"2024-09-06", "2024-09-07", "2024-09-08", "2024-09-13"}},
		{"0 9 ? * 0,7", "2024-09-01 10:00:00", []string{"2024-09-08", "2024-09-15"}},
		{"0 9 31 * *", "2017-04-10 00:00:00", []string{"2017-05-31", "2017-07-31"}},
		{"0 9 * JAN-MAR/2 1", "2024-01-30 00:00:00", []string{"2024-03-04", "2024-03-11"}},
	} {
		var got []string
		for _, fire := range firesOf(t, Spec{Expressions: []string{test.expression}}, test.after, len(test.want)) {
			got = append(got, fire[4:14])
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s after %s: got %v, want %v", test.expression, test.after, got, test.want)
		}
	}
}

func TestSpec(t *testing.T) {
	list := func(s ...string) []string { return s }
	for _, test := range []struct {
		name  string
		spec  Spec
		after string
		want  []string
	}{
		{"the union has each time once", Spec{Expressions: list("0 9 * * *", "0 */9 * * *")}, "2024-01-01 00:00:00",
			list("Mon 2024-01-01 09:00:00 +00", "Mon 2024-01-01 18:00:00 +00", "Tue 2024-01-02 00:00:00 +00")},
		{"an excluded day", Spec{Expressions: list("0 9 * * *"), Exclude: list("* * 24-26 12 *")},
			"2024-12-23 00:00:00",
			list("Mon 2024-12-23 09:00:00 +00", "Fri 2024-12-27 09:00:00 +00")},
		{"five fields exclude whole minutes", Spec{Expressions: list("*/30 * * * * *"), Exclude: list("1-58 * * * *")},
			"2024-01-01 00:00:00",
			list("Mon 2024-01-01 00:00:30 +00", "Mon 2024-01-01 00:59:00 +00", "Mon 2024-01-01 00:59:30 +00",
				"Mon 2024-01-01 01:00:00 +00")},
		{"six fields exclude seconds", Spec{Expressions: list("*/30 * * * * *"), Exclude: list("0 1-59 * * * *")},
			"2024-01-01 00:00:00",
			list("Mon 2024-01-01 00:00:30 +00", "Mon 2024-01-01 00:01:30 +00")},
		{"@every from the start",
			Spec{Expressions: list("@every 90s"), Start: at("2024-01-01 10:00:00.5Z"),
				Created: at("2024-01-01 07:00:00")},
			"2024-01-01 00:00:00", list("Mon 2024-01-01 10:00:01 +00", "Mon 2024-01-01 10:01:31 +00")},
		{"@every from the creation", Spec{Expressions: list("@every 90s"), Created: at("2024-01-01 10:00:00.9Z")},
			"2024-01-01 00:00:00",
			list("Mon 2024-01-01 10:01:30 +00", "Mon 2024-01-01 10:03:00 +00")},
		{"@every with exclusions",
			Spec{Expressions: list("@every 1h"), Created: at("2024-01-01 00:10:00"), Exclude: list("* 2-22 * * *")},
			"2024-01-01 00:00:00",
			list("Mon 2024-01-01 01:10:00 +00", "Mon 2024-01-01 23:10:00 +00", "Tue 2024-01-02 00:10:00 +00")},
		{"start and end are included",
			Spec{Expressions: list("0 * * * *"), Start: at("2024-01-01 10:00"), End: at("2024-01-01 11:00")},
			"2024-01-01 00:00:00",
			list("Mon 2024-01-01 10:00:00 +00", "Mon 2024-01-01 11:00:00 +00")},
		{"two zones", Spec{Expressions: list("CRON_TZ=America/New_York 0 9 * * *", "0 9 * * *"),
			Timezone: "Europe/Berlin"}, "2024-01-01 00:00:00",
			list("Mon 2024-01-01 09:00:00 +01", "Mon 2024-01-01 15:00:00 +01", "Tue 2024-01-02 09:00:00 +01")},
		{"an exclusion applies in the zone of the expression",
			Spec{Expressions: list("CRON_TZ=Pacific/Auckland 0 9 * * *"), Exclude: list("* * 2 1 *")},
			"2024-01-01 00:00:00", list("Tue 2024-01-02 20:00:00 +00", "Wed 2024-01-03 20:00:00 +00")},
		{"seconds", Spec{Expressions: list("5-20/7 30 9 * * *")}, "2024-01-01 09:30:05",
			list("Mon 2024-01-01 09:30:12 +00", "Mon 2024-01-01 09:30:19 +00", "Tue 2024-01-02 09:30:05 +00")},
	} {
		// One more time than expected shows whether the list ends there.
		got := firesOf(t, test.spec, test.after, len(test.want)+1)
		if len(got) > len(test.want) && test.spec.End.IsZero() {
			got = got[:len(test.want)]
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s:\ngot  %v\nwant %v", test.name, got, test.want)
		}
	}
}

func TestInvalidSpecs(t *testing.T) {
	list := func(s ...string) []string { return s }
	for _, test := range []struct {
		spec Spec
		want string
	}{
		{Spec{}, "spec.expressions: is required: write at least one expression, such as 30 9 * * MON-FRI"},
		{Spec{Expressions: list("0 0 30 2 *")},
			"spec.expressions[0]: never fires: none of its months has such a day"},
		{Spec{Expressions: list("@daily", "0 0 31W 6 *")},
			"spec.expressions[1]: never fires: none of its months has such a day"},
		{Spec{Expressions: list("*/2 * * * *"), Exclude: list("*/4 * * * *", "2-58/4 * * * *")},
			"spec.expressions[0]: never fires: exclude_expressions exclude all of its times"},
		{Spec{Expressions: list("* * * * * *"), Exclude: list("*/2 * * * * *", "1-59/2 * * * * *")},
			"spec.expressions[0]: never fires: exclude_expressions exclude all of its times"},
		{Spec{Expressions: list("@every 1m"), Exclude: list("* * * * *")},
			"spec.expressions[0]: never fires: exclude_expressions exclude all of its times"},
		{Spec{Expressions: list("30 2 * 3 7L"), Timezone: "Europe/Berlin", Created: at("2024-01-01"),
			Daylight: DaylightSaving{Gap: GapSkip}},
			"spec.expressions[0]: never fires: the clock of Europe/Berlin skips its times, and " +
				"daylight_saving.gap is SKIP"},
		{Spec{Expressions: list("@yearly"), Start: at("2024-01-02"), End: at("2024-12-31")},
			"spec.end_time: must be later: the cron has no fire time from 2024-01-02T00:00:00Z until then"},
		{Spec{Expressions: list("@daily"), Start: at("2024-01-02"), End: at("2023-12-31")},
			"spec.end_time: must be later: the cron has no fire time from 2024-01-02T00:00:00Z until then"},
		{Spec{Expressions: list("@daily"), Timezone: "Local"},
			`spec.timezone: time zone "Local" depends on the node: write an IANA name such as Europe/Berlin`},
		{Spec{Expressions: list("@daily"), Timezone: "+02:00"},
			`spec.timezone: "+02:00" is not a time zone: write an IANA name such as Europe/Berlin`},
		{Spec{Expressions: list("@daily"), Jitter: -1}, "spec.jitter: must be 0s to 876000h0m0s (got -1ns)"},
		{Spec{Expressions: list("@daily"), MaxFires: -1},
			"spec.max_fires: must not be negative (got -1): 0 means no limit"},
		{Spec{Expressions: list("@daily"), Daylight: DaylightSaving{Gap: 7}},
			"spec.daylight_saving.gap: must be SHIFT or SKIP (got 7)"},
		{Spec{Expressions: list("@daily"), Daylight: DaylightSaving{Overlap: -1}},
			"spec.daylight_saving.overlap: must be FIRST, LAST or BOTH (got -1)"},
		{Spec{Expressions: list("@daily"), Start: at("1969-12-31")},
			"spec.start_time: must be in the years 1970 to 9999 (got 1969-12-31T00:00:00Z)"},
		{Spec{Expressions: list("@daily"), Exclude: list("@every 1m")},
			"spec.exclude_expressions[0]: must not be @every: write fields, as in * * 24-26 12 *"},
		{Spec{Expressions: list("@daily"), Exclude: list("CRON_TZ=UTC 0 0 * * *")},
			"spec.exclude_expressions[0]: must not have CRON_TZ=: an exclusion uses the time zone of each expression"},
		{Spec{Expressions: slices.Repeat(list("@daily"), 101)},
			"spec.expressions: must have at most 100 expressions (got 101)"},
	} {
		if _, err := Compile(test.spec); err == nil || err.Error() != test.want {
			t.Errorf("%+v:\ngot  %v\nwant %s", test.spec, err, test.want)
		}
	}
}

func TestNextAndPrevAreStrict(t *testing.T) {
	s := compile(t, Spec{Expressions: []string{"0 * * * *"}})
	for _, test := range []struct{ from, next, prev string }{
		{"2024-01-01 10:00", "2024-01-01 11:00", "2024-01-01 09:00"},
		{"2024-01-01 10:00:00.000001Z", "2024-01-01 11:00", "2024-01-01 10:00"},
		{"2024-01-01 10:59:59.999999Z", "2024-01-01 11:00", "2024-01-01 10:00"},
	} {
		next, _ := s.Next(at(test.from))
		prev, _ := s.Prev(at(test.from))
		if !next.Equal(at(test.next)) || !prev.Equal(at(test.prev)) {
			t.Errorf("%s: got %s and %s, want %s and %s", test.from, prev, next, test.prev, test.next)
		}
	}
	if n := s.Count(at("2024-01-01 10:00"), at("2024-01-01 15:00"), 100); n != 5 {
		t.Errorf("Count: got %d, want 5: the first does not count, the last does", n)
	}
	if n := s.Count(at("2024-01-01"), at("2025-01-01"), 100); n != 100 {
		t.Errorf("Count: got %d, want the limit", n)
	}
	if first, ok := s.Next(at("1900-01-01")); !ok || first.Unix() != 0 {
		t.Errorf("Next of 1900: got %s, want 1970", first)
	}
	if last, ok := s.Next(at("9999-12-31 23:00")); ok {
		t.Errorf("Next at the end of 9999: got %s, want none", last)
	}
	every := compile(t, Spec{Expressions: []string{"@every 90s"}, Start: at("2024-01-01 10:00")})
	if first, ok := every.Prev(at("2024-01-01 10:00")); ok {
		t.Errorf("Prev at the start of @every: got %s, want none", first)
	}
	if _, ok := s.Prev(at("1970-01-01")); ok {
		t.Error("Prev at the start of 1970: want none")
	}
}

// A schedule can be used concurrently, although the cached segment of its zone is shared.
func TestConcurrentUse(t *testing.T) {
	s := compile(t, Spec{Expressions: []string{"30 2 * * *"}, Timezone: "Europe/Berlin"})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if n := s.Count(at("2024-01-01"), at("2034-01-01"), 10_000); n != 3653 {
				t.Errorf("%d fire times in ten years, want 3653", n)
			}
		})
	}
	group.Wait()
}

func TestJitter(t *testing.T) {
	s := compile(t, Spec{Expressions: []string{"*/5 * * * *"}, Jitter: time.Hour})
	var earliest, latest time.Duration = time.Hour, 0
	for fire := range s.Between(at("2024-01-01"), at("2024-01-08")) {
		late := s.Due("shop/report", fire).Sub(fire)
		if late < 0 || late >= 5*time.Minute || late%time.Millisecond != 0 {
			t.Fatalf("%s: %s late, want less than the five minutes until the next fire time", fire, late)
		}
		if late != s.Due("shop/report", fire).Sub(fire) {
			t.Fatal("the jitter differs for the same cron and fire time")
		}
		earliest, latest = min(earliest, late), max(latest, late)
	}
	if earliest > 5*time.Second || latest < 295*time.Second {
		t.Errorf("2016 fires: jitter from %s to %s, want it spread over five minutes", earliest, latest)
	}
	fire := at("2024-01-01")
	if s.Due("shop/a", fire).Equal(s.Due("shop/b", fire)) {
		t.Error("two crons have the same jitter")
	}
	if none := compile(t, Spec{Expressions: []string{"@daily"}}); !none.Due("a", fire).Equal(fire) {
		t.Error("no jitter: want the fire time")
	}
}
