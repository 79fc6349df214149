package cron

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Words describes a schedule in a sentence: "at 09:00 on the last weekday of each month,
// Europe/Berlin".
func (s *Schedule) Words() string {
	var parts []string
	for _, e := range s.expressions {
		parts = append(parts, e.Words())
	}
	sentence := strings.Join(parts, "; and ")
	if len(s.excluded) > 0 {
		var not []string
		for _, e := range s.excluded {
			words := e.Words()
			if days, ok := strings.CutPrefix(words, "every minute "); ok && e.hour == 1<<24-1 {
				words = days
			}
			not = append(not, words)
		}
		sentence += "; except " + strings.Join(not, ", and ")
	}
	if s.usesZone() {
		sentence += ", " + s.zone.location.String()
	}
	if !s.spec.Start.IsZero() {
		sentence += ", from " + text(s.spec.Start)
	}
	if !s.spec.End.IsZero() {
		sentence += ", until " + text(s.spec.End)
	}
	return sentence
}

// usesZone reports whether an expression uses the zone of the schedule rather than its own.
func (s *Schedule) usesZone() bool {
	return slices.ContainsFunc(slices.Concat(s.expressions, s.excluded),
		func(e Expression) bool { return e.zone == "" })
}

// Words describes an expression, without the zone of its schedule.
func (e Expression) Words() string {
	if e.every > 0 {
		return "every " + everyWords(e.every)
	}
	words, daily := e.clockWords()
	if days := e.dayWords(); days != "" {
		words += " " + days
	} else if daily {
		words += " every day"
	}
	if e.zone != "" {
		words += " (" + e.zone + ")"
	}
	return words
}

func everyWords(every time.Duration) string {
	words := every.String()
	if strings.HasSuffix(words, "m0s") {
		words = strings.TrimSuffix(words, "0s")
	}
	if strings.HasSuffix(words, "h0m") {
		words = strings.TrimSuffix(words, "0m")
	}
	return words
}

// maxListed is the maximum number of times of a day that are listed one by one.
const maxListed = 6

// clockWords describes the times of a day. daily reports whether the words list single times, so
// that "every day" may follow.
func (f *fields) clockWords() (words string, daily bool) {
	minutes, hours := f.minute, uint64(f.hour)
	if bits.OnesCount64(f.second) == 1 && bits.OnesCount64(minutes)*bits.OnesCount64(hours) <= maxListed {
		return "at " + and(clocks(hours, minutes, f.second)), true
	}
	if f.second == 1 && minutes == 1 {
		return hourWords(hours)
	}
	words = minuteWords(f.second, minutes)
	if hours == 1<<24-1 {
		if strings.Contains(words, "minute ") || strings.HasPrefix(words, "at minutes ") {
			words += " of every hour"
		}
		return words, false
	}
	if first, last, ok := run(hours); ok {
		return fmt.Sprintf("%s from %02d:00 to %02d:59", words, first, last), false
	}
	return words + " in " + strings.TrimPrefix(unitWords(hours, "hour", 24), "at "), false
}

func clocks(hours, minutes, seconds uint64) []string {
	var list []string
	each(hours, func(h int) {
		each(minutes, func(m int) {
			clock := fmt.Sprintf("%02d:%02d", h, m)
			if seconds != 1 {
				clock += fmt.Sprintf(":%02d", bits.TrailingZeros64(seconds))
			}
			list = append(list, clock)
		})
	})
	return list
}

func minuteWords(seconds, minutes uint64) string {
	const all = 1<<60 - 1
	words := unitWords(minutes, "minute", 60)
	if seconds == 1 {
		return words
	}
	second := unitWords(seconds, "second", 60)
	if minutes != all || strings.HasPrefix(second, "at ") {
		second += " of " + strings.TrimPrefix(words, "at ")
	}
	return second
}

// hourWords describes full hours.
func hourWords(hours uint64) (words string, daily bool) {
	if first, last, ok := run(hours); ok && hours != 1<<24-1 {
		return fmt.Sprintf("every hour from %02d:00 to %02d:00", first, last), false
	}
	if words = unitWords(hours, "hour", 24); strings.HasPrefix(words, "at ") {
		return "at " + and(clocks(hours, 1, 1)), true
	}
	return words, false
}

// unitWords describes a set of seconds, minutes or hours: every 15 minutes, at minutes 5 to 20.
func unitWords(set uint64, unit string, size int) string {
	if set == 1<<size-1 {
		return "every " + unit
	}
	if step := bits.TrailingZeros64(set &^ 1); set&1 != 0 && set != 1 && size%step == 0 &&
		set == (span{0, size - 1, step}).bits() {
		return fmt.Sprintf("every %d %ss", step, unit)
	}
	if bits.OnesCount64(set) == 1 {
		return fmt.Sprintf("at %s %d", unit, bits.TrailingZeros64(set))
	}
	return "at " + unit + "s " + listWords(set, func(i int) string { return fmt.Sprint(i) })
}

// run returns the first and the last value of a set, and reports whether the set is a single range.
func run(set uint64) (first, last int, ok bool) {
	first = bits.TrailingZeros64(set)
	last = bits.Len64(set) - 1
	return first, last, bits.OnesCount64(set) == last-first+1
}

func each(set uint64, do func(int)) {
	for ; set != 0; set &= set - 1 {
		do(bits.TrailingZeros64(set))
	}
}

// listWords lists a set, with three or more consecutive values as a range.
func listWords(set uint64, name func(int) string) string {
	var list []string
	for set != 0 {
		first := bits.TrailingZeros64(set)
		length := bits.TrailingZeros64(^(set >> first))
		if length < 3 {
			length = 1
			list = append(list, name(first))
		} else {
			list = append(list, name(first)+" to "+name(first+length-1))
		}
		set &^= (1<<length - 1) << first
	}
	return and(list)
}

func and(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

var (
	weekdayNames = [...]string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}
	monthNames   = [...]string{"", "January", "February", "March", "April", "May", "June", "July", "August",
		"September", "October",
		"November", "December"}
	nthNames = [...]string{"", "first", "second", "third", "fourth", "fifth"}
)

func ordinal(n int) string {
	suffix := "th"
	if n < 11 || n > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n) + suffix
}

// dayWords describes the days. It returns "" for every day.
func (f *fields) dayWords() string {
	months := "each month"
	allMonths := f.month == 1<<13-2
	if !allMonths {
		months = listWords(uint64(f.month), func(m int) string { return monthNames[m] })
	}
	monthly, weekly := f.monthDayWords(), f.weekdayWords()
	if monthly != "" {
		monthly += " of " + months
	}
	if strings.Contains(weekly, "the ") {
		weekly += " of " + months
	}
	switch {
	case monthly != "" && weekly != "" && (f.anyDay || f.anyWD):
		return monthly + ", if that is " + strings.TrimPrefix(weekly, "on ")
	case monthly != "" && weekly != "":
		if !allMonths && !strings.Contains(weekly, " of ") {
			weekly += " in " + months
		}
		return monthly + " or " + weekly
	case monthly != "":
		return monthly
	case weekly != "" && (allMonths || strings.Contains(weekly, " of ")):
		return weekly
	case allMonths:
		return ""
	}
	return strings.TrimSpace(weekly + " in " + months)
}

func (f *fields) monthDayWords() string {
	if f.day == 1<<32-2 || !f.special && f.day == 0 {
		return ""
	}
	var list []string
	if f.day != 0 {
		list = append(list, "the "+listWords(uint64(f.day), ordinal))
	}
	each(uint64(f.nearest), func(day int) { list = append(list, "the weekday nearest to the "+ordinal(day)) })
	if f.lastWeekday {
		list = append(list, "the last weekday")
	}
	each(uint64(f.fromLast), func(n int) {
		switch n {
		case 0:
			list = append(list, "the last day")
		case 1:
			list = append(list, "the last day but one")
		default:
			list = append(list, fmt.Sprintf("%d days before the last day", n))
		}
	})
	if len(list) == 0 {
		return ""
	}
	return "on " + and(list)
}

func (f *fields) weekdayWords() string {
	if f.weekday == 1<<7-1 {
		return ""
	}
	var list []string
	if f.weekday != 0 {
		set := uint64(f.weekday)
		if set&1 != 0 && set != 1 {
			set = set&^1 | 1<<7 // Sunday comes last, as people usually list the days of a week
		}
		list = append(list, listWords(set, func(day int) string { return weekdayNames[day%7] }))
	}
	for day, set := range f.nth {
		each(uint64(set), func(n int) { list = append(list, "the "+nthNames[n]+" "+weekdayNames[day]) })
	}
	each(uint64(f.lastOf), func(day int) { list = append(list, "the last "+weekdayNames[day]) })
	if len(list) == 0 {
		return ""
	}
	return "on " + and(list)
}
