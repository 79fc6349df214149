package search

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// check type-checks a restriction.
func (p *parser) check(r restriction) (node, error) {
	f := p.table.field(r.name)
	if f == nil {
		return nil, p.errorf(r.at, "there is no field %q: use %s", clip(r.name),
			p.table.names(func(*field) bool { return true }))
	}
	if f.doc == nil && len(r.path) > 0 {
		hint := ""
		if p.table.field(fieldMetadata.name) != nil {
			hint = ": only " + p.table.documents() + " has, as in metadata." + r.path[0]
		}
		return nil, p.errorf(r.at, "%s has no parts%s", r.name, hint)
	}
	if known := f.operators(); !slices.Contains(known, r.operator) {
		return nil, p.errorf(r.at, "%s supports only %s (got %s)", r.name, strings.Join(known, " "), r.operator)
	}
	c := &comparison{field: f, path: r.path, operator: r.operator}
	var err error
	switch {
	case f.doc != nil:
		err = p.checkDocument(r, c)
	case f.values == isState:
		return p.state(r)
	case f.values == isChoice:
		return p.choice(r, f)
	case f.values == isStatus:
		c.value, err = p.statusValue(r.literal)
	case f.values == isTime:
		c.value, err = p.timeValue(r)
	case f.values == isInteger:
		c.value, err = p.integerValue(r)
	case f.values == isTruth:
		c.value, err = p.truthValue(r)
	default:
		c.value, err = p.textValue(r, f)
	}
	if err != nil {
		return nil, err
	}
	if f == fieldJobID {
		c.field = fieldProcessID // lists are bounded by this field
	}
	return c, nil
}

func (p *parser) statusValue(l literal) (value, error) {
	name := strings.TrimPrefix(strings.ToUpper(l.text), "PROCESS_STATUS_")
	names := make([]string, 0, 6)
	for _, s := range process.Statuses() {
		if string(s) == name && l.stars == 0 {
			return value{kind: isStatus, status: s}, nil
		}
		names = append(names, string(s))
	}
	return value{}, p.errorf(l.at, "%q is not a status: use one of %s", clip(l.text), strings.Join(names, ", "))
}

// choice checks a comparison with one of a set of names.
func (p *parser) choice(r restriction, f *field) (node, error) {
	l, of := r.literal, f.choices
	name := strings.TrimPrefix(strings.ToUpper(l.text), of.prefix)
	if !slices.Contains(of.names, name) || l.stars > 0 {
		return nil, p.errorf(l.at, "%q is not a %s: use one of %s", clip(l.text), f.name, strings.Join(of.names, ", "))
	}
	if of.field != nil {
		f = of.field(name)
	}
	return &comparison{field: f, operator: r.operator, value: value{kind: isChoice, text: name}}, nil
}

// The times that can be stored, see docs/limits.md.
const firstYear, lastYear = 1970, 9999

func (p *parser) timeValue(r restriction) (value, error) {
	if r.operator == has {
		return p.anything(r)
	}
	t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(r.literal.text))
	if t = t.UTC().Truncate(time.Microsecond); err != nil || r.literal.stars > 0 || t.Year() < firstYear ||
		t.Year() > lastYear {
		return value{}, p.errorf(r.literal.at,
			`%q is not a time: %s takes RFC 3339 times from %d to %d, as in "2026-11-01T00:00:00Z"`,
			clip(r.literal.text), r.name, firstYear, lastYear)
	}
	return value{kind: isTime, time: t}, nil
}

func (p *parser) integerValue(r restriction) (value, error) {
	l := r.literal
	if r.operator == has {
		return p.anything(r)
	}
	n, err := strconv.ParseInt(l.text, 10, 64)
	if err != nil || l.stars > 0 {
		return value{}, p.errorf(l.at, "%q is not a whole number, which %s requires", clip(l.text), r.name)
	}
	return value{kind: isInteger, number: n}, nil
}

func (p *parser) truthValue(r restriction) (value, error) {
	l := r.literal
	if l.quoted || l.stars > 0 || l.text != "true" && l.text != "false" {
		return value{}, p.errorf(l.at, "%s must be true or false (got %q)", r.name, clip(l.text))
	}
	return value{kind: isTruth, truth: l.text == "true"}, nil
}

// anything checks the value of FIELD:*, the only use of the operator : for times and integers.
func (p *parser) anything(r restriction) (value, error) {
	if l := r.literal; l.quoted || l.text != "" || !l.prefix {
		return value{}, p.errorf(l.at, "write %s:* (it is set), or %s = VALUE", r.name, r.name)
	}
	return value{kind: isAnything}, nil
}

func (p *parser) textValue(r restriction, f *field) (value, error) {
	l := r.literal
	switch wild := l.stars > 0; {
	case r.operator == has && !l.quoted && l.prefix && l.text == "":
		return value{kind: isAnything}, nil
	case !wild:
		return value{kind: isText, text: l.text}, nil
	case l.stars == 1 && l.prefix && f.prefix != "" && (r.operator == equals || r.operator == differs):
		return value{kind: isPrefix, text: l.text}, nil
	}
	names := p.table.names(func(f *field) bool { return f.prefix != "" })
	return value{}, p.errorf(l.at,
		`* is a wildcard only at the end of a value after = or != of %s; "\*" is the character`, names)
}

// jsonNumber matches a number in JSON syntax. 007 is a text.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// maxNumber is the maximum number of characters of a number. Together with the limits on its value,
// it excludes numbers that PostgreSQL's numeric cannot represent, such as 1e999999.
const maxNumber = 64

func (p *parser) checkDocument(r restriction, c *comparison) error {
	l := r.literal
	there := r.operator == has && !l.quoted && l.prefix && l.text == ""
	switch {
	case len(r.path) == 0 && r.operator != has:
		return p.errorf(r.at, "write %s.KEY %s VALUE, or %s:KEY", r.name, r.operator, r.name)
	case there:
		c.value = value{kind: isAnything}
		return nil
	case l.stars > 0:
		return p.errorf(l.at,
			`%s is compared in full: "\*" is the character *, and %[1]s.KEY:* checks whether the key exists`, r.name)
	case len(r.path) == 0 && l.text == "":
		return p.errorf(l.at, "write a key, as in %s:tenant", r.name)
	case len(r.path) == 0:
		c.path, c.value = []string{l.text}, value{kind: isAnything}
		return nil
	case !l.quoted && (l.text == "true" || l.text == "false"):
		c.value = value{kind: isTruth, truth: l.text == "true"}
		if r.operator != equals && r.operator != differs && r.operator != has {
			return p.errorf(l.at, "%s has no order: use = or !=", l.text)
		}
		return nil
	case !l.quoted && jsonNumber.MatchString(l.text):
		f, err := strconv.ParseFloat(l.text, 64)
		if err != nil || len(l.text) > maxNumber || math.Abs(f) > 1e300 || (f != 0 && math.Abs(f) < 1e-300) ||
			(f == 0 && strings.Trim(l.text, "-0.") != "") {
			return p.errorf(l.at, "the number %q is too long, too large or too small", clip(l.text))
		}
		c.value = value{kind: isNumber, text: l.text}
		return nil
	}
	c.value = value{kind: isText, text: l.text}
	return nil
}
