package search

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/progressor-engine/progressor/process"
)

// The operators. Longer ones come first, because the first match is taken.
const (
	equals    = "="
	differs   = "!="
	less      = "<"
	lessEqual = "<="
	more      = ">"
	moreEqual = ">="
	has       = ":"
)

var operators = []string{differs, lessEqual, moreEqual, equals, less, more, has}

// Parse parses a filter of processes. Syntax errors are *process.InvalidError with the field
// filter. Their message contains the position and the expected input.
//
//	expression  = sequence {"AND" sequence}
//	sequence    = factor {factor}          // an AND is implied between them
//	factor      = term {"OR" term}         // OR binds closer than AND, as in AIP-160
//	term        = ["NOT" | "-"] ("(" expression ")" | restriction)
//	restriction = field operator value
func Parse(text string) (Filter, error) { return parse(text, processes) }

func parse(text string, about *table) (Filter, error) {
	p := &parser{table: about, text: text}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return Filter{}, p.errorf(0, "the filter must be UTF-8 text without the character NUL")
	}
	if p.skip(); p.ended() {
		return Filter{}, nil
	}
	root, err := p.expression()
	if err == nil && !p.ended() {
		err = p.unexpected()
	}
	if err == nil && height(root) > maxHeight {
		err = p.errorf(0, "AND, OR and NOT are nested deeper than %d", maxHeight)
	}
	if err != nil {
		return Filter{}, err
	}
	return Filter{root}, nil
}

func height(n node) int {
	var parts []node
	switch n := n.(type) {
	case allOf:
		parts = n
	case anyOf:
		parts = n
	case not:
		parts = []node{n.of}
	}
	most := 0
	for _, part := range parts {
		most = max(most, height(part))
	}
	if parts != nil {
		most++
	}
	return most
}

type parser struct {
	table   *table
	text    string
	at      int // bytes read
	nesting int
	terms   int
}

// errorf returns an error for a byte position in the text. The message counts characters.
func (p *parser) errorf(at int, format string, args ...any) error {
	return &process.InvalidError{
		Field:   "filter",
		Message: fmt.Sprintf("at character %d: ", utf8.RuneCountInString(p.text[:at])+1) + fmt.Sprintf(format, args...),
	}
}

func (p *parser) ended() bool { return p.at == len(p.text) }

func (p *parser) rest() string { return p.text[p.at:] }

func (p *parser) skip() { p.at = len(p.text) - len(strings.TrimLeftFunc(p.rest(), unicode.IsSpace)) }

// take reads a symbol if it comes next.
func (p *parser) take(symbol string) bool {
	if !strings.HasPrefix(p.rest(), symbol) {
		return false
	}
	p.at += len(symbol)
	return true
}

// keyword reads AND, OR or NOT if it comes next as a separate word.
func (p *parser) keyword(word string) bool {
	if p.word(p.at) != word {
		return false
	}
	p.at += len(word)
	p.skip()
	return true
}

// word returns the unquoted text at a byte position. It ends at a space, a quote or an operator
// character; dots and stars belong to it.
func (p *parser) word(at int) string {
	rest := p.text[at:]
	end := strings.IndexFunc(rest, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune(`()=!<>:,"'`, r)
	})
	if end < 0 {
		return rest
	}
	return rest[:end]
}

func (p *parser) unexpected() error {
	switch rest := p.rest(); {
	case rest == "":
		return p.errorf(p.at, "the filter ends where a comparison is expected, such as %s", p.table.example)
	case rest[0] == ')':
		return p.errorf(p.at, "this ) has no matching (")
	case rest[0] == '"' || rest[0] == '\'':
		return p.errorf(p.at, "a text alone is not a filter: compare a field with it, as in %s%s", p.table.text,
			clip(rest))
	default:
		return p.errorf(p.at, "%q is not expected here: write a comparison, such as %s", clip(rest), p.table.example)
	}
}

// clip returns the beginning of an invalid text.
func clip(text string) string {
	const most = 20
	n := 0
	for at := range text {
		if n++; n > most {
			return text[:at] + "…"
		}
	}
	return text
}

func (p *parser) expression() (node, error) {
	if p.nesting++; p.nesting > maxNesting+1 { // the whole filter counts as one
		return nil, p.errorf(p.at, "parentheses are nested deeper than %d", maxNesting)
	}
	defer func() { p.nesting-- }()
	var all allOf
	for {
		part, err := p.factor()
		if err != nil {
			return nil, err
		}
		if inner, ok := part.(allOf); ok {
			all = append(all, inner...)
		} else {
			all = append(all, part)
		}
		if !p.keyword("AND") && (p.ended() || p.rest()[0] == ')') {
			break
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

func (p *parser) factor() (node, error) {
	var list anyOf
	for {
		part, err := p.term()
		if err != nil {
			return nil, err
		}
		if inner, ok := part.(anyOf); ok {
			list = append(list, inner...)
		} else {
			list = append(list, part)
		}
		if !p.keyword("OR") {
			break
		}
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return list, nil
}

func (p *parser) term() (node, error) {
	negated := p.keyword("NOT")
	if !negated && p.take("-") {
		negated = true
		p.skip()
	}
	inner, err := p.simple()
	if err != nil || !negated {
		return inner, err
	}
	return not{inner}, nil
}

func (p *parser) simple() (node, error) {
	open := p.at
	if !p.take("(") {
		return p.restriction()
	}
	p.skip()
	inner, err := p.expression()
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		if p.ended() {
			return nil, p.errorf(open, "this ( has no matching )")
		}
		return nil, p.unexpected()
	}
	p.skip()
	return inner, nil
}

func (p *parser) restriction() (node, error) {
	if p.terms++; p.terms > maxTerms {
		return nil, p.errorf(p.at, "a filter may have at most %d comparisons", maxTerms)
	}
	began := p.at
	name, path, err := p.field()
	if err != nil {
		return nil, err
	}
	p.skip()
	op := ""
	for _, o := range operators {
		if p.take(o) {
			op = o
			break
		}
	}
	if op == "" {
		return nil, p.noOperator(began, name)
	}
	if op == "=" && strings.HasPrefix(p.rest(), "=") {
		return nil, p.errorf(p.at-1, "== is not an operator: write =")
	}
	p.skip()
	lit, err := p.literal()
	if err != nil {
		return nil, err
	}
	p.skip()
	return p.check(restriction{began, name, path, op, lit})
}

func (p *parser) noOperator(began int, name string) error {
	switch upper := strings.ToUpper(name); {
	case upper != name && (upper == "AND" || upper == "OR" || upper == "NOT"):
		return p.errorf(began, "write %s in capitals", upper)
	case strings.HasPrefix(p.rest(), "("):
		return p.errorf(began, "functions such as %q are not supported", name)
	}
	if p.table.field(name) == nil {
		return p.errorf(began, "a word alone is not a filter: compare a field with it, as in %s%q", p.table.text,
			clip(name))
	}
	return p.errorf(p.at, "write = != < <= > >= or : after %s", name)
}

// restriction is a comparison as it was written.
type restriction struct {
	at       int // where it begins
	name     string
	path     []string
	operator string
	literal  literal
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)

// keyChars matches a key of metadata that needs no quotes.
var keyChars = regexp.MustCompile(`^[A-Za-z0-9_-]+`)

func plainKey(key string) bool { return keyChars.FindString(key) == key && key != "" }

// field parses a name and an optional path.
func (p *parser) field() (name string, path []string, err error) {
	name = identifier.FindString(p.rest())
	if name == "" {
		return "", nil, p.unexpected()
	}
	p.at += len(name)
	for p.take(".") {
		at := p.at
		var key string
		switch rest := p.rest(); {
		case rest != "" && (rest[0] == '"' || rest[0] == '\''):
			lit, err := p.quoted()
			if err != nil {
				return "", nil, err
			}
			if lit.stars > 0 {
				return "", nil, p.errorf(at, `write the whole key; \* stands for the character *`)
			}
			key = lit.text
		default:
			key = keyChars.FindString(rest)
			p.at += len(key)
		}
		if key == "" {
			return "", nil, p.errorf(at, "write a key after the dot, in quotes if it contains characters other than "+
				"letters, digits, _ and -")
		}
		if path = append(path, key); len(path) > maxSegments {
			return "", nil, p.errorf(at, "a path has at most %d keys", maxSegments)
		}
	}
	return name, path, nil
}

// literal is a value as it was written. * is a wildcard unless it is escaped.
type literal struct {
	at     int
	text   string // without the wildcard at its end
	quoted bool
	stars  int  // number of wildcards
	prefix bool // the last one is at the end
}

var timestamp = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})`)

func (p *parser) literal() (literal, error) {
	rest := p.rest()
	if rest != "" && (rest[0] == '"' || rest[0] == '\'') {
		return p.quoted()
	}
	l := literal{at: p.at, text: timestamp.FindString(rest)}
	if l.text == "" {
		l.text = p.word(p.at)
	}
	p.at += len(l.text)
	if l.text == "" {
		return l, p.errorf(p.at, "write a value, in quotes if it is not a single word")
	}
	if p.at < len(p.text) && p.text[p.at] == '(' {
		return l, p.errorf(l.at, "functions such as %q are not supported", clip(l.text))
	}
	l.stars = strings.Count(l.text, "*")
	l.text, l.prefix = strings.CutSuffix(l.text, "*")
	return l, nil
}

// quoted parses a text in single or double quotes. \ escapes a quote, a star or another \.
func (p *parser) quoted() (literal, error) {
	l := literal{at: p.at, quoted: true}
	quote := p.text[p.at]
	var b strings.Builder
	for at := p.at + 1; at < len(p.text); at++ {
		switch c := p.text[at]; c {
		case quote:
			p.at = at + 1
			l.text = b.String()
			if l.prefix {
				l.text = l.text[:len(l.text)-1]
			}
			return l, nil
		case '\\':
			if at++; at == len(p.text) || !strings.ContainsRune(`\"'*`, rune(p.text[at])) {
				return l, p.errorf(at-1, `after \ write one of \ " ' *`)
			}
			b.WriteByte(p.text[at])
			l.prefix = false
		default:
			b.WriteByte(c)
			if l.prefix = c == '*'; l.prefix {
				l.stars++
			}
		}
	}
	return l, p.errorf(l.at, "the quote is not closed")
}
