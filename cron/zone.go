package cron

import (
	"fmt"
	"math"
	"sort"
	"sync/atomic"
	"time"
)

// LoadZone returns an IANA zone; "" is UTC. All nodes of a version use the same data, because the
// program's own copy takes precedence over the files of the machine. "Local" is rejected: it would
// differ between nodes.
func LoadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, fmt.Errorf("time zone %q depends on the node: write an IANA name such as Europe/Berlin", name)
	}
	if location := embeddedZone(name); location != nil {
		return location, nil
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%q is not a time zone: write an IANA name such as Europe/Berlin", name)
	}
	return location, nil
}

// segment is a period in which a zone keeps its offset. Instants are seconds since 1970 in UTC;
// local times are the same count on the wall clock, so that local = instant + offset.
type segment struct {
	start, end     int64 // end is exclusive
	offset         int64
	before, behind int64 // the offsets of the segments around it
}

// zone finds the segment of an instant. If the file of a zone does not list a transition, Go
// computes it from the rule of the zone. This takes 0.5 µs each time, so zone caches the last
// segment.
type zone struct {
	location *time.Location
	last     atomic.Pointer[segment]
}

func (z *zone) at(instant int64) *segment {
	if s := z.last.Load(); s != nil && s.start <= instant && instant < s.end {
		return s
	}
	t := time.Unix(instant, 0).In(z.location)
	s := &segment{start: math.MinInt64, end: math.MaxInt64}
	s.offset = offsetOf(t)
	s.before, s.behind = s.offset, s.offset
	start, end := t.ZoneBounds()
	if !start.IsZero() {
		s.start = z.begin(start.Unix(), instant, s.offset)
		s.before = offsetOf(time.Unix(s.start-1, 0).In(z.location))
	}
	if !end.IsZero() {
		s.end = end.Unix()
		if s.end <= instant {
			// If only the rule of a zone applies, Go 1.26 computes with 365 days for every year,
			// and returns an end in the past for the last day of a leap year (time.tzset). The
			// segment then ends at the end of that day in UTC.
			s.end = (floorDiv(instant, secondsOfDay) + 1) * secondsOfDay
		}
		s.behind = offsetOf(time.Unix(s.end, 0).In(z.location))
	}
	z.last.Store(s)
	return s
}

// begin returns when the offset of an instant began. After the last transition in the file of a
// zone, Go 1.26 computes the start only from the rule. That start may be before the transition,
// when another offset applied.
func (z *zone) begin(start, instant, offset int64) int64 {
	at := func(second int64) int64 { return offsetOf(time.Unix(second, 0).In(z.location)) }
	if at(start) == offset {
		return start
	}
	return start + int64(sort.Search(int(instant-start), func(n int) bool { return at(start+int64(n)) == offset }))
}

func offsetOf(t time.Time) int64 {
	_, offset := t.Zone()
	return int64(offset)
}

// window returns the part of a segment's local times at which an expression fires.
//
// If the clock is set back by an hour, the same local times occur in two segments, and overlap
// defines in which of them fixed hours fire.
func (s *segment) window(x *Expression, overlap Overlap) (from, to int64) {
	from, to = math.MinInt64, math.MaxInt64
	if s.start != math.MinInt64 {
		from = s.start + s.offset
	}
	if s.end != math.MaxInt64 {
		to = s.end + s.offset
	}
	if x.realTime {
		return from, to
	}
	if overlap == OverlapFirst && s.before > s.offset {
		from = s.start + s.before
	}
	if overlap == OverlapLast && s.behind < s.offset {
		to = s.end + s.behind
	}
	return from, to
}

// gap returns the local times that the start of the segment skips, if there are any.
func (s *segment) gap() (from, to int64, ok bool) {
	if s.before >= s.offset || s.start == math.MinInt64 {
		return 0, 0, false
	}
	return s.start + s.before, s.start + s.offset, true
}
