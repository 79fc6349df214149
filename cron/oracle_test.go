package cron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// This is a second, slow implementation of the API. It checks each second or minute separately,
// with Go's own calendar, and uses no bit sets. Expressions are drawn together with their text, so
// it needs no parser.

// naivePart is one part of a field, with its text.
type naivePart struct {
	text  string
	match func(naiveDay, int) bool
}

// naiveDay is a day that the parts of the day fields check.
type naiveDay struct{ date time.Time }

func (d naiveDay) weekday() int { return int(d.date.Weekday()) }

func (d naiveDay) lastDay() int {
	return time.Date(d.date.Year(), d.date.Month()+1, 0, 12, 0, 0, 0, time.UTC).Day()
}

// nearest returns the weekday nearest to a day of the month, or 0 if the month has no such day.
func (d naiveDay) nearest(day int) int {
	if day > d.lastDay() {
		return 0
	}
	for distance := range 3 {
		for _, candidate := range []int{day - distance, day + distance} {
			date := time.Date(d.date.Year(), d.date.Month(), candidate, 12, 0, 0, 0, time.UTC)
			if date.Month() == d.date.Month() && date.Weekday() != time.Saturday && date.Weekday() != time.Sunday {
				return candidate
			}
		}
	}
	panic("a month without weekdays")
}

type naiveField []naivePart

func (f naiveField) text() string {
	var parts []string
	for _, part := range f {
		parts = append(parts, part.text)
	}
	return strings.Join(parts, ",")
}

func (f naiveField) match(day naiveDay, value int) bool {
	return slices.ContainsFunc(f, func(part naivePart) bool { return part.match(day, value) })
}

func (f naiveField) starred() bool {
	return strings.HasPrefix(f.text(), "*") || strings.HasPrefix(f.text(), "?")
}

// naive is a complete expression: second, minute, hour, day of month, month, day of week.
type naive struct {
	field   [6]naiveField
	seconds bool
}

func (n naive) text() string {
	var fields []string
	for i, field := range n.field {
		if i > 0 || n.seconds {
			fields = append(fields, field.text())
		}
	}
	return strings.Join(fields, " ")
}

func (n naive) realTime() bool { return strings.ContainsAny(n.field[2].text(), "*/") }

// wall reports whether an expression matches a local time, which is given as UTC.
func (n naive) wall(local time.Time) bool {
	day := naiveDay{date: local}
	if !n.field[0].match(day, local.Second()) || !n.field[1].match(day, local.Minute()) ||
		!n.field[2].match(day, local.Hour()) {
		return false
	}
	return n.onDay(day)
}

func (n naive) onDay(day naiveDay) bool {
	if !n.field[4].match(day, int(day.date.Month())) {
		return false
	}
	monthly, weekly := n.field[3].match(day, day.date.Day()), n.field[5].match(day, day.weekday())
	if n.field[3].starred() || n.field[5].starred() {
		return monthly && weekly
	}
	return monthly || weekly
}

func wallOf(t time.Time, location *time.Location) time.Time {
	local := t.In(location)
	_, offset := local.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// fires reports whether an instant is a fire time. step is the distance between possible fire
// times.
func (n naive) fires(
	t time.Time, location *time.Location, daylight DaylightSaving, step time.Duration, excluded func(time.Time) bool,
) bool {
	counts := func(local time.Time) bool { return n.wall(local) && !excluded(local) }
	wall := wallOf(t, location)
	if n.realTime() {
		return counts(wall)
	}
	before := wallOf(t.Add(-time.Second), location).Add(time.Second)
	if daylight.Gap == GapShift && before.Before(wall) && !excluded(wall) {
		for local := before; local.Before(wall); local = local.Add(step) {
			if counts(local) {
				return true
			}
		}
	}
	if !counts(wall) {
		return false
	}
	// Find the other instants with this local time. Each offset of the zone near t yields at most
	// one.
	for near := -48; near <= 48; near++ {
		_, offset := t.Add(time.Duration(near) * time.Hour).In(location).Zone()
		twin := wall.Add(-time.Duration(offset) * time.Second)
		if !wallOf(twin, location).Equal(wall) {
			continue
		}
		if daylight.Overlap == OverlapFirst && twin.Before(t) || daylight.Overlap == OverlapLast && twin.After(t) {
			return false
		}
	}
	return true
}

// drawPart draws *, a value, a range or a step of a field.
func drawPart(t *rapid.T, low, high int, label string) naivePart {
	a := rapid.IntRange(low, high).Draw(t, label)
	b := rapid.IntRange(a, high).Draw(t, label+" to")
	step := rapid.IntRange(1, max(1, high-low)).Draw(t, label+" step")
	switch rapid.SampledFrom([]string{"value", "value", "*", "range", "*/step", "a/step", "a-b/step"}).Draw(t,
		label+" form") {
	case "value":
		return naivePart{strconv.Itoa(a), func(_ naiveDay, v int) bool { return v == a }}
	case "*":
		return naivePart{"*", func(naiveDay, int) bool { return true }}
	case "range":
		return naivePart{fmt.Sprintf("%d-%d", a, b), func(_ naiveDay, v int) bool { return a <= v && v <= b }}
	case "*/step":
		return naivePart{fmt.Sprintf("*/%d", step), func(_ naiveDay, v int) bool { return (v-low)%step == 0 }}
	case "a/step":
		return naivePart{fmt.Sprintf("%d/%d", a, step),
			func(_ naiveDay, v int) bool { return v >= a && (v-a)%step == 0 }}
	}
	return naivePart{fmt.Sprintf("%d-%d/%d", a, b, step),
		func(_ naiveDay, v int) bool { return a <= v && v <= b && (v-a)%step == 0 }}
}

func drawDay(t *rapid.T) naivePart {
	n := rapid.IntRange(1, 31).Draw(t, "special day")
	switch rapid.SampledFrom([]string{"plain", "plain", "plain", "L", "L-n", "LW", "nW"}).Draw(t, "day form") {
	case "L":
		return naivePart{"L", func(d naiveDay, v int) bool { return v == d.lastDay() }}
	case "L-n":
		return naivePart{fmt.Sprintf("L-%d", n-1), func(d naiveDay, v int) bool { return v == d.lastDay()-n+1 }}
	case "LW":
		return naivePart{"LW", func(d naiveDay, v int) bool { return v == d.nearest(d.lastDay()) }}
	case "nW":
		return naivePart{fmt.Sprintf("%dW", n), func(d naiveDay, v int) bool { return v == d.nearest(n) }}
	}
	return drawPart(t, 1, 31, "day")
}

func drawWeekday(t *rapid.T) naivePart {
	w, nth := rapid.IntRange(0, 6).Draw(t, "special weekday"), rapid.IntRange(1, 5).Draw(t, "nth")
	switch rapid.SampledFrom([]string{"plain", "plain", "plain", "L", "#"}).Draw(t, "weekday form") {
	case "L":
		return naivePart{fmt.Sprintf("%dL", w),
			func(d naiveDay, v int) bool { return v == w && d.date.Day() > d.lastDay()-7 }}
	case "#":
		return naivePart{fmt.Sprintf("%d#%d", w, nth),
			func(d naiveDay, v int) bool { return v == w && (d.date.Day()+6)/7 == nth }}
	}
	return drawPart(t, 0, 6, "weekday")
}

func drawField(t *rapid.T, part func() naivePart) naiveField {
	var field naiveField
	for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "parts") {
		field = append(field, part())
	}
	return field
}

var star = naiveField{{"*", func(naiveDay, int) bool { return true }}}

// drawNaive draws an expression. It often matches every day, so that a window of a few days
// contains fire times.
func drawNaive(t *rapid.T, seconds bool) naive {
	n := naive{seconds: seconds}
	n.field[0] = naiveField{{"0", func(_ naiveDay, v int) bool { return v == 0 }}}
	if seconds {
		n.field[0] = drawField(t, func() naivePart { return drawPart(t, 0, 59, "second") })
	}
	n.field[1] = drawField(t, func() naivePart { return drawPart(t, 0, 59, "minute") })
	n.field[2] = drawField(t, func() naivePart { return drawPart(t, 0, 23, "hour") })
	n.field[3], n.field[4], n.field[5] = star, star, star
	if rapid.Bool().Draw(t, "days") {
		n.field[3] = drawField(t, func() naivePart { return drawDay(t) })
	}
	if rapid.IntRange(0, 3).Draw(t, "months") == 0 {
		n.field[4] = drawField(t, func() naivePart { return drawPart(t, 1, 12, "month") })
	}
	if rapid.Bool().Draw(t, "weekdays") {
		n.field[5] = drawField(t, func() naivePart { return drawWeekday(t) })
	}
	return n
}
