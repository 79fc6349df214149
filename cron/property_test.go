package cron

import (
	"archive/zip"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func drawDaylight(t *rapid.T) DaylightSaving {
	return DaylightSaving{
		Gap:     rapid.SampledFrom([]Gap{GapShift, GapSkip}).Draw(t, "gap"),
		Overlap: rapid.SampledFrom([]Overlap{OverlapFirst, OverlapLast, OverlapBoth}).Draw(t, "overlap"),
	}
}

// compareWithNaive checks every step of a window against the slow implementation, and walks through
// the fire times of s forwards and backwards.
func compareWithNaive(
	t interface{ Fatalf(string, ...any) }, s *Schedule, from, to time.Time, step time.Duration,
	fires func(time.Time) bool,
) int {
	var want []time.Time
	for at := from; at.Before(to); at = at.Add(step) {
		if fires(at) {
			want = append(want, at.UTC())
		}
	}
	if got := slices.Collect(s.Between(from, to)); !slices.Equal(got, want) {
		t.Fatalf("%+v: Between %s and %s:\ngot  %v\nwant %v", s.spec, from, to, got, want)
	}
	var got []time.Time
	for at, ok := s.Next(from.Add(-1)); ok && at.Before(to); at, ok = s.Next(at) {
		got = append(got, at)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%+v: Next from %s to %s:\ngot  %v\nwant %v", s.spec, from, to, got, want)
	}
	got = slices.Collect(s.Backward(to, from))
	slices.Reverse(got)
	if !slices.Equal(got, want) {
		t.Fatalf("%+v: Backward from %s to %s:\ngot  %v\nwant %v", s.spec, to, from, got, want)
	}
	return len(want)
}

var drawnZones = []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago",
	"Africa/Casablanca", "Asia/Kathmandu"}

// Random specs with several expressions and exclusions are compared with the slow implementation,
// in windows that often contain a transition.
func TestSpecsAgainstEachSecond(t *testing.T) {
	found, compared := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Bool().Draw(t, "with seconds")
		step, length := time.Minute, 60*time.Hour
		if seconds {
			step, length = time.Second, 90*time.Minute
		}
		var expressions, exclusions []naive
		for range rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "expressions") {
			expressions = append(expressions, drawNaive(t, seconds))
		}
		for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "exclusions") {
			exclusions = append(exclusions, drawNaive(t, rapid.Bool().Draw(t, "exclude seconds")))
		}
		spec := Spec{Timezone: rapid.SampledFrom(drawnZones).Draw(t, "zone"), Daylight: drawDaylight(t)}
		for _, n := range expressions {
			spec.Expressions = append(spec.Expressions, n.text())
		}
		for _, n := range exclusions {
			spec.Exclude = append(spec.Exclude, n.text())
		}
		s, err := Compile(spec)
		if err != nil {
			if !strings.Contains(err.Error(), "never fires") {
				t.Fatal(err)
			}
			return
		}
		from := time.Unix(rapid.Int64Range(60, 4e9).Draw(t, "from")/60*60, 0)
		if _, end := from.In(s.Location()).ZoneBounds(); rapid.Bool().Draw(t, "at a transition") && !end.IsZero() {
			from = end.Add(-length / 2).Truncate(time.Minute)
		}
		excluded := func(local time.Time) bool {
			return slices.ContainsFunc(exclusions, func(n naive) bool {
				if !n.seconds {
					return n.wall(local.Truncate(time.Minute))
				}
				return n.wall(local)
			})
		}
		found += compareWithNaive(t, s, from, from.Add(length), step, func(at time.Time) bool {
			return slices.ContainsFunc(expressions,
				func(n naive) bool { return n.fires(at, s.Location(), s.spec.Daylight, step, excluded) })
		})
		compared++
	})
	if compared == 0 || found == 0 {
		t.Errorf("%d specs with %d fire times compared: nothing was tested", compared, found)
	}
}

// Expressions with random day fields that fire at 12:30 are compared with the slow implementation
// for each day of thirty years.
func TestDaysAgainstEachDay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNaive(t, false)
		n.field[1] = naiveField{{"30", func(_ naiveDay, v int) bool { return v == 30 }}}
		n.field[2] = naiveField{{"12", func(_ naiveDay, v int) bool { return v == 12 }}}
		s, err := Compile(Spec{Expressions: []string{n.text()},
			Timezone: rapid.SampledFrom(drawnZones).Draw(t, "zone")})
		if err != nil {
			if !strings.Contains(err.Error(), "none of its months has such a day") {
				t.Fatal(err)
			}
			return
		}
		year := rapid.OneOf(rapid.IntRange(1971, 2060), rapid.IntRange(1971, 9900)).Draw(t, "year")
		var want []time.Time
		for day := time.Date(year, 3, 1, 12, 30, 0, 0, time.UTC); day.Year() < year+30; day = day.AddDate(0, 0, 1) {
			if n.onDay(naiveDay{day}) {
				want = append(want, time.Date(day.Year(), day.Month(), day.Day(), 12, 30, 0, 0, s.Location()).UTC())
			}
		}
		from, to := time.Date(year, 3, 1, 0, 0, 0, 0, s.Location()), time.Date(year+30, 1, 1, 0, 0, 0, 0, s.Location())
		got := slices.Collect(s.Backward(to, from))
		slices.Reverse(got)
		if forwards := slices.Collect(s.Between(from, to)); !slices.Equal(got, want) || !slices.Equal(forwards, want) {
			t.Fatalf("%+v from %s:\ngot  %v\nand  %v\nwant %v", s.spec, from, forwards, got, want)
		}
	})
}

// zoneNames lists the zones of Go's own copy of tzdata.
func zoneNames(t *testing.T) []string {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("go env GOROOT: %v", err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatalf("Go's zoneinfo.zip: %v", err)
	}
	defer archive.Close()
	var names []string
	for _, file := range archive.File {
		if !strings.HasSuffix(file.Name, "/") {
			names = append(names, file.Name)
		}
	}
	return names
}

// transitions returns the changes of a zone's offset from 1973 to the end of 2040. All offsets
// since 1973 are whole minutes.
func transitions(location *time.Location) []time.Time {
	var list []time.Time
	for at := time.Unix(3*365*86400, 0).In(location); ; {
		_, end := at.ZoneBounds()
		if end.IsZero() || end.Year() > 2040 {
			return list
		}
		if offsetOf(end) != offsetOf(end.Add(-1)) {
			list = append(list, end)
		}
		if !end.After(at) { // see zone.at
			end = at.Add(24 * time.Hour)
		}
		at = end
	}
}

// At every transition of every zone, fixed hours in and around the skipped or repeated hour and a
// schedule that follows real time are compared with the slow implementation.
func TestEveryTransition(t *testing.T) {
	seen := map[string]bool{} // zones with the same transitions
	count, found := 0, 0
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range zoneNames(t) {
		location, err := LoadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		list := transitions(location)
		same := fmt.Sprint(list)
		if len(list) == 0 || seen[same] {
			continue
		}
		seen[same] = true
		for i, change := range list {
			if testing.Short() && i < len(list)-2 {
				continue
			}
			count++
			found += compareAtTransition(t, random, name, change)
		}
	}
	t.Logf("%d transitions, %d fire times", count, found)
	if count < 500 || found < count {
		t.Errorf("%d transitions with %d fire times: nothing was tested", count, found)
	}
}

func compareAtTransition(t *testing.T, random *rand.Rand, name string, change time.Time) int {
	value := func(v int) naiveField {
		return naiveField{{fmt.Sprint(v), func(_ naiveDay, got int) bool { return got == v }}}
	}
	fixed := naive{field: [6]naiveField{value(0), value(random.IntN(60)), value(0), star, star, star}}
	// Use an hour near the change, which the clock may skip or repeat.
	before := wallOf(change.Add(-time.Second), change.Location())
	fixed.field[2] = value(before.Add(time.Duration(random.IntN(181)-60) * time.Minute).Hour())
	stepped := fixed
	stepped.field[1] = naiveField{{"*/20", func(_ naiveDay, v int) bool { return v%20 == 0 }}}
	stepped.field[2] = naiveField{{"*/2", func(_ naiveDay, v int) bool { return v%2 == 0 }}}
	found := 0
	for _, n := range []naive{fixed, stepped} {
		spec := Spec{Expressions: []string{n.text()}, Timezone: name,
			Daylight: DaylightSaving{Gap: Gap(1 + random.IntN(2)), Overlap: Overlap(1 + random.IntN(3))}}
		s, err := Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		from, to := change.Add(-150*time.Minute).Truncate(time.Minute), change.Add(150*time.Minute)
		found += compareWithNaive(t, s, from, to, time.Minute, func(at time.Time) bool {
			return n.fires(at, s.Location(), s.spec.Daylight, time.Minute, func(time.Time) bool { return false })
		})
	}
	return found
}
