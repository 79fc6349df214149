package cron

import (
	"fmt"
	"math"
	"sort"
	"sync/atomic"
	"time"
)

// LoadZone finds an IANA zone; "" is UTC. All nodes of one version agree on a zone: the program's own copy comes before the files of the
// machine. "Local" is refused: it would be another zone on each node.
func LoadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, fmt.Errorf("time zone %q is another one on each node: write an IANA name such as Europe/Berlin", name)
	}
	if location := embeddedZone(name); location != nil {
		return location, nil
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%q is no time zone: write an IANA name such as Europe/Berlin", name)
	}
	return location, nil
}

// segment is a time in which a zone keeps its offset. Instants are seconds since 1970 in UTC; local times are the same
// count on the clock of the wall, so that local = instant + offset.
type segment struct {
	start, end     int64 // end is not in it
	offset         int64
	before, behind int64 // the offsets of the segments around it
}

// zone answers in which segment an instant is. Go computes the transitions that a zone's file does not list from its rule,
// which takes 0.5 µs each time: the segment that was asked for last is kept.
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
			// Where only the rule of a zone speaks, Go 1.26 gives every year 365 days, and an end in the past to the last day
			// of a leap year (time.tzset). The segment ends with that day of UTC.
			s.end = (floorDiv(instant, secondsOfDay) + 1) * secondsOfDay
		}
		s.behind = offsetOf(time.Unix(s.end, 0).In(z.location))
	}
	z.last.Store(s)
	return s
}

// begin is when the offset of an instant began. Behind the last transition that a zone's file lists, Go 1.26 takes the start from its rule
// alone: it may lie before that transition, where the offset was another one.
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

// window is the part of a segment's local times that an expression fires at.
//
// Where the clock goes back by an hour, local times come twice, in two segments: of fixed hours one of the two counts.
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

// gap is the local times that the start of the segment leaves out, where there are any.
func (s *segment) gap() (from, to int64, ok bool) {
	if s.before >= s.offset || s.start == math.MinInt64 {
		return 0, 0, false
	}
	return s.start + s.before, s.start + s.offset, true
}
