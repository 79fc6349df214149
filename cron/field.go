package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// field describes a field of an expression.
type field struct {
	name     string // name in errors
	min, max int
	names    []string // names of the values, beginning with min; nil if only numbers are allowed
}

var (
	secondField = field{name: "second", max: 59}
	minuteField = field{name: "minute", max: 59}
	hourField   = field{name: "hour", max: 23}
	dayField    = field{name: "day of month", min: 1, max: 31}
	monthField  = field{name: "month", min: 1, max: 12, names: []string{
		"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}}
	// 7 is also Sunday, and the end of FRI-SUN.
	weekdayField = field{name: "day of week", max: 7, names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}}
)

// values describes the valid values of the field.
func (f field) values() string {
	if f.names == nil {
		return fmt.Sprintf("%d to %d", f.min, f.max)
	}
	return fmt.Sprintf("%d to %d or %s to %s", f.min, f.max, f.names[0], f.names[len(f.names)-1])
}

// value parses a number or a name.
func (f field) value(text string) (int, error) {
	for i, name := range f.names {
		if text == name {
			return f.min + i, nil
		}
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || strings.HasPrefix(text, "+") || int(n) < f.min || int(n) > f.max {
		if text == "" {
			return 0, fmt.Errorf("a value is missing: use %s", f.values())
		}
		return 0, fmt.Errorf("%q is not a value from %s", text, f.values())
	}
	return int(n), nil
}

// span is a range with a step: first, first+step, … up to last.
type span struct{ first, last, step int }

// span parses *, a value, a range, and any of them with a step. A value with a step extends to the
// end of the field (Quartz: 5/15 is 5-59/15).
func (f field) span(text string) (span, error) {
	body, stepText, stepped := strings.Cut(text, "/")
	s := span{first: f.min, last: f.max, step: 1}
	if f.name == weekdayField.name {
		s.last = 6 // * must contain each day only once, and 7 is also Sunday
	}
	top := s.last
	switch from, to, isRange := strings.Cut(body, "-"); {
	case body == "*":
	case isRange:
		var err error
		if s.first, err = f.value(from); err != nil {
			return s, err
		}
		if s.last, err = f.value(to); err != nil {
			return s, err
		}
		if f.name == weekdayField.name && s.first > 0 && s.last == 0 {
			s.last = 7
		}
		if s.first > s.last {
			return s, fmt.Errorf("the range %s runs backwards: write %s-%d,%d-%s", body, from, top, f.min, to)
		}
	default:
		var err error
		if s.first, err = f.value(body); err != nil {
			return s, err
		}
		if !stepped {
			s.last = s.first
		}
		s.last = max(s.last, s.first)
	}
	if stepped {
		step, err := strconv.ParseUint(stepText, 10, 16)
		if err != nil || step == 0 || int(step) > f.max || strings.HasPrefix(stepText, "+") {
			return s, fmt.Errorf("the step %q is not a number from 1 to %d", stepText, f.max)
		}
		s.step = int(step)
	}
	return s, nil
}

func (s span) bits() uint64 {
	var set uint64
	for i := s.first; i <= s.last; i += s.step {
		set |= 1 << i
	}
	return set
}

// fields are the conditions of an expression on a local time, as sets of bits with one bit per
// value.
type fields struct {
	second, minute uint64
	hour           uint32
	month          uint32
	day            uint32   // days of the month
	weekday        uint8    // 0 is Sunday
	fromLast       uint32   // L-3 is bit 3
	nearest        uint32   // 15W is bit 15
	lastWeekday    bool     // LW
	nth            [7]uint8 // FRI#3 is bit 3 of nth[5]
	lastOf         uint8    // FRIL is bit 5
	special        bool     // any of the five above
	anyDay, anyWD  bool     // the field begins with * and does not restrict the days
}

// monthDays returns the days of a month that match, bits 1 to 31. first is the weekday of the 1st,
// length the number of days.
//
// POSIX (crontab, "the specification of days"): if both day of month and day of week restrict, a
// match of one of them is sufficient. A field restricts if it does not begin with * (Vixie's rule),
// so */2 with MON requires both.
func (f *fields) monthDays(first, length int) uint32 {
	all := uint32(1)<<(length+1) - 2
	week := uint64(f.weekday)
	week = (week>>first | week<<(7-first)) & 0x7f
	weekdays := uint32(week*(1|1<<7|1<<14|1<<21|1<<28)) << 1
	days := f.day
	if f.special {
		days |= f.specialDays(first, length)
		weekdays |= f.specialWeekdays(first, length)
	}
	if f.anyDay || f.anyWD {
		return days & weekdays & all
	}
	return (days | weekdays) & all
}

// specialDays returns the days of L, L-n, LW and nW. It omits days that the month does not have
// (Quartz: 31W skips June).
func (f *fields) specialDays(first, length int) uint32 {
	var days uint32
	for set := f.fromLast; set != 0; set &= set - 1 {
		if day := length - bits.TrailingZeros32(set); day > 0 {
			days |= 1 << day
		}
	}
	for set := f.nearest; set != 0; set &= set - 1 {
		if day := bits.TrailingZeros32(set); day <= length {
			days |= 1 << nearestWeekday(day, first, length)
		}
	}
	if f.lastWeekday {
		days |= 1 << nearestWeekday(length, first, length)
	}
	return days
}

// nearestWeekday returns the weekday nearest to a day, within the same month: Monday the 3rd for
// Saturday the 1st, and Friday the 29th for Sunday the 31st.
func nearestWeekday(day, first, length int) int {
	switch (first + day - 1) % 7 {
	case 6:
		if day == 1 {
			return 3
		}
		return day - 1
	case 0:
		if day == length {
			return day - 2
		}
		return day + 1
	}
	return day
}

// specialWeekdays returns the days of FRI#3 and FRIL. A month without a fifth Friday has no FRI#5.
func (f *fields) specialWeekdays(first, length int) uint32 {
	var days uint32
	for weekday := range 7 {
		one := 1 + (weekday-first+7)%7
		for set := f.nth[weekday]; set != 0; set &= set - 1 {
			days |= 1 << (one + 7*(bits.TrailingZeros8(set)-1))
		}
		if f.lastOf&(1<<weekday) != 0 {
			days |= 1 << (one + (length-one)/7*7)
		}
	}
	return days
}

// covers reports whether an exclusion, passed as not, excludes every time at which f fires on a day
// on which both match.
func (f *fields) covers(not *fields) bool {
	return f.second&^not.second == 0 && f.minute&^not.minute == 0 && f.hour&^not.hour == 0
}
