package cron

import "math"

// source is an expression of a schedule in its time zone. Instants are seconds since 1970.
type source interface {
	// next returns the first fire in [from, to).
	next(from, to int64) (int64, bool)
	// prev returns the last fire in [from, to).
	prev(from, to int64) (int64, bool)
}

// calendar fires at local times.
type calendar struct {
	expression Expression
	pattern    pattern
	zone       *zone
	daylight   DaylightSaving
}

// shifts reports whether the calendar fires at the start of s for local times in the gap before s.
func (c *calendar) shifts(m *month, s *segment) bool {
	from, to, ok := s.gap()
	if !ok || c.expression.realTime || c.daylight.Gap != GapShift {
		return false
	}
	if _, found := c.pattern.next(m, from, to); !found {
		return false
	}
	// Exclusions also apply to the time at which it would fire.
	free := pattern{fields: everySecond, not: c.pattern.not}
	_, found := free.next(&month{}, to, to+1)
	return found
}

// settled is longer than the difference between the local times of any two zones. A time that is
// this far from a transition is not affected by the transition.
const settled = 2 * secondsOfDay

func (c *calendar) next(from, to int64) (int64, bool) {
	var m month
	for from < to {
		s := c.zone.at(from)
		if from == s.start && c.shifts(&m, s) {
			return from, true
		}
		low, high := s.window(&c.expression, c.daylight.Overlap)
		low = max(low, from+s.offset)
		local, ok := c.pattern.next(&m, low, to+settled)
		if ok && local < high {
			return local - s.offset, local < to+s.offset
		}
		// The earlier segments cannot contain a match, either. Without this check, finding the leap
		// day in a zone with summer time took 10 µs.
		jump := from+settled < s.end
		if !ok && jump {
			return 0, false
		}
		from = s.end
		if jump {
			from = max(from, local-settled)
		}
	}
	return 0, false
}

func (c *calendar) prev(from, to int64) (int64, bool) {
	var m month
	for from < to {
		s := c.zone.at(to - 1)
		low, high := s.window(&c.expression, c.daylight.Overlap)
		low = max(low, from+s.offset)
		high = min(high, to+s.offset)
		if local, ok := c.pattern.prev(&m, low, high); ok {
			return local - s.offset, true
		}
		if from <= s.start && c.shifts(&m, s) {
			return s.start, true
		}
		to = s.start
	}
	return 0, false
}

// interval fires at a fixed interval of seconds, counted from an anchor.
type interval struct {
	anchor, every int64
	free          *calendar // all seconds that are not excluded, or nil without exclusions
}

// maxExcluded limits the consecutive excluded fires of an @every. Beyond the limit, the schedule
// counts as ended. A contiguous exclusion is skipped in one step; 100,000 separate ones take about
// 20 ms.
const maxExcluded = 100_000

func (i *interval) next(from, to int64) (int64, bool) {
	for range maxExcluded {
		at := i.anchor + max(0, -floorDiv(i.anchor-from, i.every))*i.every
		if at >= to {
			return 0, false
		}
		if i.free == nil {
			return at, true
		}
		free, ok := i.free.next(at, to)
		if !ok || free == at {
			return at, ok
		}
		from = free
	}
	return 0, false
}

func (i *interval) prev(from, to int64) (int64, bool) {
	for range maxExcluded {
		if to <= i.anchor || to == math.MinInt64 {
			return 0, false
		}
		at := i.anchor + (to-1-i.anchor)/i.every*i.every
		if at < from {
			return 0, false
		}
		if i.free == nil {
			return at, true
		}
		free, ok := i.free.prev(from, at+1)
		if !ok || free == at {
			return at, ok
		}
		to = free + 1
	}
	return 0, false
}
