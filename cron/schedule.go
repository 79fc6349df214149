package cron

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"time"
)

// Spec defines when a cron fires: the CronSpec of the API.
type Spec struct {
	Expressions []string      // 1 to 100 expressions; the cron fires at the times of all of them
	Timezone    string        // IANA name; empty means UTC
	Start       time.Time     // earliest fire time; zero means no limit
	End         time.Time     // latest fire time; zero means no limit
	Created     time.Time     // all fire times are later; @every counts from Start, Created or 1970
	Jitter      time.Duration // maximum delay of a fire; 0 means none
	// Exclude has at most 100 expressions for local times at which the cron does not fire. The
	// exclusions apply in the time zone of each expression.
	Exclude  []string
	Daylight DaylightSaving
	MaxFires int64 // runs; 0 means no limit. Counted by Cron, not by Schedule
}

// DaylightSaving defines how expressions with fixed hours behave when the clock changes.
// Expressions with a wildcard or a step in the hour field, and @every, follow real time instead:
// they fire in every hour that passes. This is the rule of Vixie's cron for changes of up to three
// hours (cron(8), "daylight saving time").
type DaylightSaving struct {
	Gap     Gap
	Overlap Overlap
}

// Gap defines what happens to local times that do not exist.
type Gap int32

// The values, with the numbers of the API.
const (
	GapDefault Gap = iota // GapShift
	GapShift              // fire at the end of the gap, once
	GapSkip
)

// Overlap defines which occurrences of repeated local times fire.
type Overlap int32

// The values, with the numbers of the API.
const (
	OverlapDefault Overlap = iota // OverlapFirst
	OverlapFirst
	OverlapLast
	OverlapBoth
)

// The limits of a spec, as in the API.
const (
	MaxExpressions = 100
	MaxDuration    = 100 * 365 * 24 * time.Hour
)

// SpecError is an invalid field of a spec or a policy.
type SpecError struct {
	Field string // path in the API, such as "spec.expressions[1]"
	Err   error
}

func (e *SpecError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the ParseError of an expression.
func (e *SpecError) Unwrap() error { return e.Err }

func invalid(field, format string, args ...any) error {
	return &SpecError{Field: field, Err: fmt.Errorf(format, args...)}
}

// Fire times are whole seconds from 1970 to the end of 9999. Dates, weekdays and the rules of zones
// repeat after 400 years, so an expression that does not fire in 400 years never fires.
const (
	lastInstant = 253402300799
	horizon     = 146097 * secondsOfDay
)

// Schedule is a valid spec. It is safe for concurrent use.
type Schedule struct {
	spec        Spec
	zone        *zone
	expressions []Expression
	excluded    []Expression
	sources     []source
	from, to    int64 // it fires in [from, to)
}

// Compile compiles a spec. It returns an error if the spec never fires, or if an expression adds no
// fire times.
func Compile(spec Spec) (*Schedule, error) {
	s := &Schedule{spec: spec, to: lastInstant + 1}
	if err := s.check(); err != nil {
		return nil, err
	}
	location, err := LoadZone(spec.Timezone)
	if err != nil {
		return nil, &SpecError{Field: "spec.timezone", Err: err}
	}
	s.zone = &zone{location: location}
	if !spec.Created.IsZero() {
		s.from = max(s.from, spec.Created.Unix()+1)
	}
	if !spec.Start.IsZero() {
		s.from = max(s.from, ceilSecond(spec.Start))
	}
	if !spec.End.IsZero() {
		s.to = min(s.to, spec.End.Unix()+1)
	}
	not, err := s.exclusions()
	if err != nil {
		return nil, err
	}
	for i, text := range spec.Expressions {
		field := fmt.Sprintf("spec.expressions[%d]", i)
		expression, err := Parse(text)
		if err != nil {
			return nil, &SpecError{Field: field, Err: err}
		}
		s.expressions = append(s.expressions, expression)
		if err := s.add(expression, not); err != nil {
			return nil, &SpecError{Field: field, Err: err}
		}
	}
	if _, ok := s.next(s.from, s.to); !ok {
		return nil, invalid("spec.end_time", "must be later: the cron has no fire time from %s until then",
			text(time.Unix(s.from, 0)))
	}
	return s, nil
}

func (s *Schedule) check() error {
	spec := &s.spec
	switch n := len(spec.Expressions); {
	case n == 0:
		return invalid("spec.expressions", "is required: write at least one expression, such as 30 9 * * MON-FRI")
	case n > MaxExpressions:
		return invalid("spec.expressions", "must have at most %d expressions (got %d)", MaxExpressions, n)
	case len(spec.Exclude) > MaxExpressions:
		return invalid("spec.exclude_expressions", "must have at most %d expressions (got %d)", MaxExpressions,
			len(spec.Exclude))
	case spec.Jitter < 0 || spec.Jitter > MaxDuration:
		return invalid("spec.jitter", "must be 0s to %s (got %s)", MaxDuration, spec.Jitter)
	case spec.MaxFires < 0:
		return invalid("spec.max_fires", "must not be negative (got %d): 0 means no limit", spec.MaxFires)
	case spec.Daylight.Gap < 0 || spec.Daylight.Gap > GapSkip:
		return invalid("spec.daylight_saving.gap", "must be SHIFT or SKIP (got %d)", spec.Daylight.Gap)
	case spec.Daylight.Overlap < 0 || spec.Daylight.Overlap > OverlapBoth:
		return invalid("spec.daylight_saving.overlap", "must be FIRST, LAST or BOTH (got %d)", spec.Daylight.Overlap)
	}
	if spec.Daylight.Gap == GapDefault {
		spec.Daylight.Gap = GapShift
	}
	if spec.Daylight.Overlap == OverlapDefault {
		spec.Daylight.Overlap = OverlapFirst
	}
	for field, t := range map[string]time.Time{"spec.start_time": spec.Start, "spec.end_time": spec.End} {
		if !t.IsZero() && (t.Unix() < 0 || t.Unix() > lastInstant) {
			return invalid(field, "must be in the years 1970 to 9999 (got %s)", text(t))
		}
	}
	return nil
}

// exclusions returns the excluded local times, which apply in the zone of each expression. An
// exclusion with five fields covers whole minutes, and one with six fields single seconds.
func (s *Schedule) exclusions() ([]fields, error) {
	var not []fields
	for i, text := range s.spec.Exclude {
		field := fmt.Sprintf("spec.exclude_expressions[%d]", i)
		expression, err := Parse(text)
		switch {
		case err != nil:
			return nil, &SpecError{Field: field, Err: err}
		case expression.every > 0:
			return nil, invalid(field, "must not be @every: write fields, as in * * 24-26 12 *")
		case expression.zone != "":
			return nil, invalid(field, "must not have CRON_TZ=: an exclusion uses the time zone of each expression")
		}
		s.excluded = append(s.excluded, expression)
		if !expression.explicit {
			expression.second = 1<<60 - 1
		}
		not = append(not, expression.fields)
	}
	return not, nil
}

var everySecond = fields{second: 1<<60 - 1, minute: 1<<60 - 1, hour: 1<<24 - 1, month: 1<<13 - 2,
	day: 1<<32 - 2, weekday: 1<<7 - 1, anyDay: true, anyWD: true}

// add creates the source of an expression. It returns an error if the expression never fires.
func (s *Schedule) add(x Expression, not []fields) error {
	if x.every > 0 {
		every := &interval{every: int64(x.every / time.Second)}
		switch {
		case !s.spec.Start.IsZero():
			every.anchor = ceilSecond(s.spec.Start)
		case !s.spec.Created.IsZero():
			every.anchor = s.spec.Created.Unix()
		}
		if len(not) > 0 {
			every.free = &calendar{expression: x, pattern: pattern{fields: everySecond, not: not}, zone: s.zone}
		}
		s.sources = append(s.sources, every)
		if _, ok := every.next(s.from, min(s.from+horizon, lastInstant+1)); !ok {
			return errors.New("never fires: exclude_expressions exclude all of its times")
		}
		return nil
	}
	at := s.zone
	if x.zone != "" {
		location, err := LoadZone(x.zone)
		if err != nil {
			return err
		}
		at = &zone{location: location}
	}
	c := &calendar{expression: x, pattern: pattern{fields: x.fields, not: not}, zone: at, daylight: s.spec.Daylight}
	s.sources = append(s.sources, c)
	if _, ok := c.next(s.from, min(s.from+horizon, lastInstant+1)); ok {
		return nil
	}
	if _, ok := (&pattern{fields: x.fields}).next(&month{}, 0, horizon); !ok {
		return errors.New("never fires: none of its months has such a day")
	}
	if _, ok := c.pattern.next(&month{}, 0, horizon); !ok {
		return errors.New("never fires: exclude_expressions exclude all of its times")
	}
	if c.daylight.Gap == GapSkip {
		return fmt.Errorf("never fires: the clock of %s skips its times, and daylight_saving.gap is SKIP", at.location)
	}
	return fmt.Errorf("never fires after %s", text(time.Unix(s.from, 0)))
}

func ceilSecond(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// text formats a time for errors and reasons.
func text(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Location returns the time zone of the spec.
func (s *Schedule) Location() *time.Location { return s.zone.location }

func (s *Schedule) next(from, to int64) (int64, bool) {
	from, to = max(from, s.from), min(to, s.to)
	found := int64(math.MaxInt64)
	for _, source := range s.sources {
		if at, ok := source.next(from, min(to, from+horizon, found)); ok {
			found = at
		}
	}
	return found, found != math.MaxInt64
}

func (s *Schedule) prev(from, to int64) (int64, bool) {
	from, to = max(from, s.from), min(to, s.to)
	found := int64(math.MinInt64)
	for _, source := range s.sources {
		if at, ok := source.prev(max(from, found+1), to); ok {
			found = at
		}
	}
	return found, found != math.MinInt64
}

// Next returns the first fire time after t in UTC, or false after the end of the spec or of 9999.
func (s *Schedule) Next(t time.Time) (time.Time, bool) {
	at, ok := s.next(t.Unix()+1, s.to)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(at, 0).UTC(), true
}

// Prev returns the last fire time before t.
func (s *Schedule) Prev(t time.Time) (time.Time, bool) {
	at, ok := s.prev(s.from, ceilSecond(t))
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(at, 0).UTC(), true
}

// Between returns the fire times in [from, to), oldest first.
func (s *Schedule) Between(from, to time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		low, high := max(ceilSecond(from), s.from), min(ceilSecond(to), s.to)
		pending := make([]int64, len(s.sources)) // the next fire of each source, or high if there is none
		advance := func(i int) {
			at, ok := s.sources[i].next(low, min(high, low+horizon))
			if !ok {
				at = high
			}
			pending[i] = at
		}
		for i := range pending {
			advance(i)
		}
		for {
			at := high
			for _, one := range pending {
				at = min(at, one)
			}
			if at >= high || !yield(time.Unix(at, 0).UTC()) {
				return
			}
			low = at + 1
			for i := range pending {
				if pending[i] == at {
					advance(i)
				}
			}
		}
	}
}

// Backward returns the fire times in [from, to), newest first.
func (s *Schedule) Backward(to, from time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		low, high := ceilSecond(from), ceilSecond(to)
		for {
			at, ok := s.prev(low, high)
			if !ok || !yield(time.Unix(at, 0).UTC()) {
				return
			}
			high = at
		}
	}
}

// Count returns the number of fire times in (after, upTo], at most limit.
func (s *Schedule) Count(after, upTo time.Time, limit int) int {
	n := 0
	for range s.Between(time.Unix(after.Unix()+1, 0), time.Unix(upTo.Unix()+1, 0)) {
		if n++; n >= limit {
			break
		}
	}
	return n
}

// Past returns the schedule without Created, because a backfill also runs fire times before the
// cron was created. The anchor of @every does not change.
func (s *Schedule) Past() *Schedule {
	past := *s
	past.from = 0
	if !s.spec.Start.IsZero() {
		past.from = ceilSecond(s.spec.Start)
	}
	return &past
}

// Due returns when a fire time is decided: delayed by at most the jitter of the spec, but before
// the next fire time, so that fires stay in order. The delay depends only on the fire time and the
// key of the cron. Its resolution is 1 ms.
func (s *Schedule) Due(key string, fire time.Time) time.Time {
	room := s.spec.Jitter
	if room == 0 {
		return fire
	}
	if next, ok := s.Next(fire); ok {
		room = min(room, next.Sub(fire))
	}
	steps := uint64(room / time.Millisecond)
	if steps == 0 {
		return fire
	}
	return fire.Add(time.Duration(spread(key, uint64(fire.Unix()))%steps) * time.Millisecond)
}

// spread is FNV-1a with the finalizer of SplitMix64, because FNV alone leaves the last bytes in the
// low bits.
func spread(key string, n uint64) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h ^= n
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
