package cron

import "math/bits"

const secondsOfDay = 24 * 60 * 60

// pattern finds the local times of an expression without the excluded ones.
type pattern struct {
	fields
	not []fields
}

// month is a calendar month with the days on which a pattern fires.
type month struct {
	year, number int   // number 1 to 12
	start        int64 // first day, in days since 1970
	length       int
	days         uint32   // bit 1 to 31
	not          []uint32 // for each exclusion, the days of which it covers a part
	// empty caches sets of exclusions (bit i is not[i]) that exclude all of a day. A calendar has
	// about 5,000 kinds of days. Without this cache, rejecting a spec whose exclusions exclude
	// every second separately took 2.6 s.
	empty map[[2]uint64]bool
}

// excluding returns the set of exclusions that cover a part of the day.
func (m *month) excluding(day int) (set [2]uint64) {
	for i, days := range m.not {
		set[i/64] |= uint64(days>>day&1) << (i % 64)
	}
	return set
}

// monthOf returns the month of a day (since 1970) and the day in that month. It uses the proleptic
// Gregorian calendar with years that begin in March, so that the leap day is the last day of a
// year.
func monthOf(day int64) (year, number, dayOfMonth int) {
	shifted := day + 719468
	era := shifted / 146097
	ofEra := shifted - era*146097
	yearOfEra := (ofEra - ofEra/1460 + ofEra/36524 - ofEra/146096) / 365
	ofYear := ofEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	m := (5*ofYear + 2) / 153
	dayOfMonth = int(ofYear-(153*m+2)/5) + 1
	number = int(m) + 3
	year = int(yearOfEra + era*400)
	if number > 12 {
		number -= 12
		year++
	}
	return year, number, dayOfMonth
}

var monthLengths = [13]int{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

func monthLength(year, number int) int {
	if number == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0) {
		return 29
	}
	return monthLengths[number]
}

// weekdayOf returns the weekday of a day, 0 for Sunday. 1 January 1970 was a Thursday.
func weekdayOf(day int64) int { return int((day%7 + 7 + 4) % 7) }

// fill sets the days of the month on which the pattern fires.
func (p *pattern) fill(m *month) {
	m.days = 0
	m.length = monthLength(m.year, m.number)
	if p.month&(1<<m.number) == 0 {
		return
	}
	first := weekdayOf(m.start)
	m.days = p.monthDays(first, m.length)
	if len(p.not) == 0 {
		return
	}
	m.not = append(m.not[:0], make([]uint32, len(p.not))...)
	for i := range p.not {
		not := &p.not[i]
		if not.month&(1<<m.number) == 0 {
			continue
		}
		days := not.monthDays(first, m.length)
		if p.covers(not) {
			m.days &^= days
		} else {
			m.not[i] = days
		}
	}
}

// step moves to the previous or next month.
func (m *month) step(by int) {
	if by > 0 {
		m.start += int64(m.length)
	}
	m.number += by
	switch m.number {
	case 13:
		m.year, m.number = m.year+1, 1
	case 0:
		m.year, m.number = m.year-1, 12
	}
	if by < 0 {
		m.start -= int64(monthLength(m.year, m.number))
	}
}

// next returns the first local second of the pattern in [from, to). m is scratch space for one
// search.
func (p *pattern) next(m *month, from, to int64) (int64, bool) {
	if from >= to {
		return 0, false
	}
	day := floorDiv(from, secondsOfDay)
	second := int(from - day*secondsOfDay)
	var dayOfMonth int
	m.year, m.number, dayOfMonth = monthOf(day)
	m.start = day - int64(dayOfMonth) + 1
	for m.start*secondsOfDay < to {
		p.fill(m)
		for days := m.days >> dayOfMonth << dayOfMonth; days != 0; days &= days - 1 {
			d := bits.TrailingZeros32(days)
			at := m.start + int64(d) - 1
			if at > day {
				second = 0
			}
			if clock, ok := p.onDay(m, d, second, true); ok {
				found := at*secondsOfDay + int64(clock)
				return found, found < to
			}
		}
		dayOfMonth, second = 1, 0
		m.step(1)
	}
	return 0, false
}

// prev returns the last local second of the pattern in [from, to).
func (p *pattern) prev(m *month, from, to int64) (int64, bool) {
	if from >= to {
		return 0, false
	}
	day := floorDiv(to-1, secondsOfDay)
	second := int(to - 1 - day*secondsOfDay)
	var dayOfMonth int
	m.year, m.number, dayOfMonth = monthOf(day)
	m.start = day - int64(dayOfMonth) + 1
	for {
		p.fill(m)
		for days := m.days & (1<<(dayOfMonth+1) - 1); days != 0; days &^= 1 << (bits.Len32(days) - 1) {
			d := bits.Len32(days) - 1
			at := m.start + int64(d) - 1
			if at < day {
				second = secondsOfDay - 1
			}
			if clock, ok := p.onDay(m, d, second, false); ok {
				found := at*secondsOfDay + int64(clock)
				return found, found >= from
			}
		}
		if m.start*secondsOfDay <= from {
			return 0, false
		}
		dayOfMonth, second = 31, secondsOfDay-1
		m.step(-1)
	}
}

func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((-a + b - 1) / b)
	}
	return a / b
}

// onDay searches a day of m, forward or backward from one of its seconds.
func (p *pattern) onDay(m *month, day, second int, forwards bool) (int, bool) {
	var set [2]uint64
	if len(p.not) > 0 {
		if set = m.excluding(day); m.empty[set] {
			return 0, false
		}
	}
	var found int
	var ok, whole bool
	if forwards {
		found, ok = p.nextClock(second, m, day)
		whole = second == 0
	} else {
		found, ok = p.prevClock(second, m, day)
		whole = second == secondsOfDay-1
	}
	if !ok && whole && len(p.not) > 0 {
		if m.empty == nil {
			m.empty = map[[2]uint64]bool{}
		}
		m.empty[set] = true
	}
	return found, ok
}

// minutesLeft and secondsLeft return the minutes of an hour, and the seconds of a minute, that the
// exclusions do not cover.
func (p *pattern) minutesLeft(set uint64, m *month, day, hour int) uint64 {
	for i := range p.not {
		not := &p.not[i]
		if m.not[i]&(1<<day) != 0 && not.hour&(1<<hour) != 0 && p.second&^not.second == 0 {
			set &^= not.minute
		}
	}
	return set
}

func (p *pattern) secondsLeft(set uint64, m *month, day, hour, minute int) uint64 {
	for i := range p.not {
		not := &p.not[i]
		if m.not[i]&(1<<day) != 0 && not.hour&(1<<hour) != 0 && not.minute&(1<<minute) != 0 {
			set &^= not.second
		}
	}
	return set
}

// nextClock returns the first wall clock second of a day of m that is not before from.
func (p *pattern) nextClock(from int, m *month, day int) (int, bool) {
	hour, minute, second := from/3600, from/60%60, from%60
	for hours := p.hour >> hour << hour; hours != 0; hours &= hours - 1 {
		h := bits.TrailingZeros32(hours)
		if h > hour {
			minute, second = 0, 0
		}
		for minutes := p.minutesLeft(p.minute>>minute<<minute, m, day, h); minutes != 0; minutes &= minutes - 1 {
			n := bits.TrailingZeros64(minutes)
			if n > minute {
				second = 0
			}
			if seconds := p.secondsLeft(p.second>>second<<second, m, day, h, n); seconds != 0 {
				return h*3600 + n*60 + bits.TrailingZeros64(seconds), true
			}
		}
	}
	return 0, false
}

// prevClock returns the last wall clock second of a day of m that is not after to.
func (p *pattern) prevClock(to int, m *month, day int) (int, bool) {
	hour, minute, second := to/3600, to/60%60, to%60
	for hours := p.hour & (1<<(hour+1) - 1); hours != 0; hours &^= 1 << (bits.Len32(hours) - 1) {
		h := bits.Len32(hours) - 1
		if h < hour {
			minute, second = 59, 59
		}
		minutes := p.minutesLeft(p.minute&(1<<(minute+1)-1), m, day, h)
		for ; minutes != 0; minutes &^= 1 << (bits.Len64(minutes) - 1) {
			n := bits.Len64(minutes) - 1
			if n < minute {
				second = 59
			}
			if seconds := p.secondsLeft(p.second&(1<<(second+1)-1), m, day, h, n); seconds != 0 {
				return h*3600 + n*60 + bits.Len64(seconds) - 1, true
			}
		}
	}
	return 0, false
}
