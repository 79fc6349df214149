package cron

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Expression is a parsed cron expression.
type Expression struct {
	fields
	text     string        // canonical form
	zone     string        // the time zone of CRON_TZ=; "" if there is none
	every    time.Duration // the interval of @every; otherwise 0
	realTime bool          // follows real time: the hour field has a wildcard or a step
	explicit bool          // it has a field for seconds
}

// ParseError is an error in an expression, with its position.
type ParseError struct {
	Expression string
	Field      string // such as "hour"; "" for the whole expression
	Character  int    // position of the invalid part, counted from 1
	Message    string // the problem, and the valid values
}

func (e *ParseError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%q: %s", e.Expression, e.Message)
	}
	return fmt.Sprintf("%q: %s (character %d): %s", e.Expression, e.Field, e.Character, e.Message)
}

// descriptors maps names to the expressions that they abbreviate (crontab(5), "extensions").
var descriptors = map[string]string{
	"@YEARLY": "0 0 1 1 *", "@ANNUALLY": "0 0 1 1 *", "@MONTHLY": "0 0 1 * *", "@WEEKLY": "0 0 * * 0",
	"@DAILY": "0 0 * * *", "@MIDNIGHT": "0 0 * * *", "@HOURLY": "0 * * * *",
}

// word is a part of an expression between spaces.
type word struct {
	text string
	at   int // position, from 1
}

func words(text string) []word {
	var list []word
	for i := 0; i < len(text); {
		if text[i] == ' ' || text[i] == '\t' {
			i++
			continue
		}
		end := i
		for end < len(text) && text[end] != ' ' && text[end] != '\t' {
			end++
		}
		list = append(list, word{text: text[i:end], at: i + 1})
		i = end
	}
	return list
}

// Parse parses an expression: five fields, six with seconds first, @hourly and similar, or @every
// 90s, optionally after CRON_TZ=Europe/Berlin. Only zones are case-sensitive. As in Unix, the days
// of the week 0 and 7 are Sunday (Quartz counts from 1).
func Parse(text string) (Expression, error) {
	p := parser{text: text}
	e, err := p.parse(words(text))
	if err != nil {
		return Expression{}, err
	}
	return e, nil
}

// String returns the expression in a canonical form, which Parse reads as an equal expression.
func (e Expression) String() string { return e.text }

type parser struct{ text string }

func (p parser) fail(field string, at int, format string, args ...any) error {
	return &ParseError{Expression: p.text, Field: field, Character: at, Message: fmt.Sprintf(format, args...)}
}

func (p parser) parse(list []word) (Expression, error) {
	var e Expression
	if len(list) > 0 {
		name, zone, ok := strings.Cut(list[0].text, "=")
		if ok && (name == "CRON_TZ" || name == "TZ") {
			if _, err := LoadZone(zone); err != nil || zone == "" {
				return e, p.fail("time zone", list[0].at, "%q is not an IANA name such as Europe/Berlin or UTC", zone)
			}
			e.zone = zone
			list = list[1:]
		}
	}
	prefix := ""
	if e.zone != "" {
		prefix = "CRON_TZ=" + e.zone + " "
	}
	switch {
	case len(list) == 0:
		return e, p.fail("", len(p.text)+1, "the fields are missing: write five, as in 30 9 * * MON-FRI")
	case strings.HasPrefix(list[0].text, "@"):
		err := p.descriptor(&e, list)
		e.text = prefix + e.text
		return e, err
	}
	fields := make([]string, len(list))
	for i, w := range list {
		fields[i] = strings.ToUpper(w.text)
	}
	e.text = prefix + strings.Join(fields, " ")
	err := p.fields(&e, list)
	return e, err
}

func (p parser) descriptor(e *Expression, list []word) error {
	name := strings.ToUpper(list[0].text)
	if name == "@EVERY" {
		return p.everyInterval(e, list)
	}
	meaning, ok := descriptors[name]
	if !ok {
		return p.fail("", list[0].at, "%q is not @yearly, @monthly, @weekly, @daily, @hourly or @every 90s",
			list[0].text)
	}
	if len(list) > 1 {
		return p.fail("", list[1].at, "unexpected text after %s", list[0].text)
	}
	e.text = strings.ToLower(name)
	return p.fields(e, words(meaning))
}

func (p parser) everyInterval(e *Expression, list []word) error {
	if len(list) != 2 {
		return p.fail("", list[0].at, "@every takes one interval, as in @every 90s or @every 1h30m")
	}
	every, err := time.ParseDuration(list[1].text)
	switch {
	case err != nil:
		return p.fail("interval", list[1].at, "%q is not an interval such as 90s, 15m or 24h", list[1].text)
	case every < time.Second || every > MaxDuration:
		return p.fail("interval", list[1].at, "%s is not between 1s and %s", list[1].text, MaxDuration)
	case every%time.Second != 0:
		return p.fail("interval", list[1].at, "%s is not a whole number of seconds", list[1].text)
	}
	e.every, e.realTime = every, true
	e.text = "@every " + every.String()
	return nil
}

func (p parser) fields(e *Expression, list []word) error {
	switch n := len(list); n {
	case 5:
		list = append([]word{{text: "0", at: 1}}, list...)
	case 6:
		e.explicit = true
	case 7:
		return p.fail("", list[6].at, "it has seven fields: a year is not supported, use start_time and end_time")
	default:
		return p.fail("", len(p.text)+1,
			"it has %d fields: write five (minute hour day month weekday), or six with seconds first", n)
	}
	hour := list[2].text
	e.realTime = strings.ContainsAny(hour, "*/")
	e.anyDay = strings.HasPrefix(list[3].text, "*") || strings.HasPrefix(list[3].text, "?")
	e.anyWD = strings.HasPrefix(list[5].text, "*") || strings.HasPrefix(list[5].text, "?")
	for i, read := range []func(*fields, string) error{
		setter(secondField, func(f *fields, set uint64) { f.second |= set }),
		setter(minuteField, func(f *fields, set uint64) { f.minute |= set }),
		setter(hourField, func(f *fields, set uint64) { f.hour |= uint32(set) }),
		(*fields).addDay,
		setter(monthField, func(f *fields, set uint64) { f.month |= uint32(set) }),
		(*fields).addWeekday,
	} {
		if err := p.list(&e.fields, list[i], fieldNames[i], read); err != nil {
			return err
		}
	}
	return nil
}

var fieldNames = [6]string{secondField.name, minuteField.name, hourField.name, dayField.name, monthField.name,
	weekdayField.name}

// list parses the parts of a field, between commas.
func (p parser) list(f *fields, w word, name string, read func(*fields, string) error) error {
	at := w.at
	for part := range strings.SplitSeq(w.text, ",") {
		if err := read(f, strings.ToUpper(part)); err != nil {
			return p.fail(name, at, "%v", err)
		}
		at += len(part) + 1
	}
	return nil
}

func setter(f field, add func(*fields, uint64)) func(*fields, string) error {
	return func(to *fields, text string) error {
		if text == "?" {
			return errors.New("? is allowed only for the day of month or the day of week: write *")
		}
		s, err := f.span(text)
		if err != nil {
			return err
		}
		add(to, s.bits())
		return nil
	}
}

// addDay parses a part of the day of month (L, LW, L-3 and 15W are Quartz's).
func (f *fields) addDay(text string) error {
	switch body, nearest := strings.CutSuffix(text, "W"); {
	case text == "?":
		text = "*"
	case text == "L":
		f.fromLast, f.special = f.fromLast|1, true
		return nil
	case text == "LW":
		f.lastWeekday, f.special = true, true
		return nil
	case strings.HasPrefix(text, "L-"):
		n, err := strconv.ParseUint(text[2:], 10, 8)
		if err != nil || n > 30 {
			return fmt.Errorf("%q: L- needs a number from 0 to 30, as in L-3", text)
		}
		f.fromLast, f.special = f.fromLast|1<<n, true
		return nil
	case nearest:
		day, err := dayField.value(body)
		if err != nil {
			return fmt.Errorf("%q: W needs one day or L before it, as in 15W or LW: %w", text, err)
		}
		f.nearest, f.special = f.nearest|1<<day, true
		return nil
	}
	s, err := dayField.span(text)
	if err != nil {
		return err
	}
	f.day |= uint32(s.bits())
	return nil
}

// addWeekday parses a part of the day of week (5L and FRI#3 are Quartz's).
func (f *fields) addWeekday(text string) error {
	name, nth, isNth := strings.Cut(text, "#")
	body, isLast := strings.CutSuffix(text, "L")
	switch {
	case text == "?":
		text = "*"
	case text == "L":
		return errors.New(`"L" needs a day of the week: write SATL or 6L for the last Saturday`)
	case isNth:
		day, err := weekdayField.value(name)
		if err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
		if len(nth) != 1 || nth[0] < '1' || nth[0] > '5' {
			return fmt.Errorf("%q: # needs a number from 1 to 5 after it, as in FRI#3", text)
		}
		f.nth[day%7] |= 1 << (nth[0] - '0')
		f.special = true
		return nil
	case isLast:
		day, err := weekdayField.value(body)
		if err != nil {
			return fmt.Errorf("%q: L needs one day before it, as in 5L or FRIL: %w", text, err)
		}
		f.lastOf, f.special = f.lastOf|1<<(day%7), true
		return nil
	}
	s, err := weekdayField.span(text)
	if err != nil {
		return err
	}
	set := s.bits()
	f.weekday |= uint8(set&0x7f | set>>7)
	return nil
}
