package cli

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// valueError is the message for an invalid value. It names the flag or argument.
type valueError string

func (e valueError) Error() string { return string(e) }

// requireValues rejects flags without a value, and required arguments that are empty, such as an
// empty namespace. Because kong allows negative numbers, it would take the next flag as the value.
// At the end of the line, it would use an empty value.
func requireValues(parser *kong.Kong) error {
	return kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		switch node := node.(type) {
		case *kong.Flag:
			if !node.IsBool() && !node.IsCounter() {
				node.Mapper = flagValue{node.Mapper, node}
			}
		case *kong.Value:
			if node.Flag == nil && node.Target.Kind() == reflect.String && node.Name != "filter" &&
				(node.Required || node.Name == "id") {
				node.Mapper = nonEmptyArgument{node.Mapper, node}
			}
		}
		return next(nil)
	})
}

// flagValue reads the value of a flag.
type flagValue struct {
	kong.Mapper
	flag *kong.Flag
}

func (m flagValue) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	token := ctx.Scan.Peek()
	text, _ := token.Value.(string)
	switch {
	case token.IsEOL():
		return valueError(m.missingValue())
	case token.Type == kong.UntypedToken && isFlagWord(text):
		return valueError(fmt.Sprintf("%s; if you mean %s, write --%s=%s", m.missingValue(), text, m.flag.Name, text))
	case token.Type == kong.ShortFlagTailToken && strings.HasPrefix(text, "="): // -k=KEY equals --idempotency-key=KEY
		text = text[1:]
		ctx.Scan.Pop()
		ctx.Scan.PushTyped(text, kong.FlagValueToken)
	}
	if text == "" && slices.Contains([]string{"id", "idempotency-key"}, m.flag.Name) {
		return valueError(fmt.Sprintf("--%s: must not be empty: set %s, or omit the flag", m.flag.Name,
			m.flag.FormatPlaceHolder()))
	}
	return m.Mapper.Decode(ctx, target)
}

// isFlagWord reports whether a word of the command line looks like a flag rather than a negative
// number.
func isFlagWord(s string) bool {
	letter := len(s) == 2 && (s[1] >= 'a' && s[1] <= 'z' || s[1] >= 'A' && s[1] <= 'Z')
	return strings.HasPrefix(s, "--") || letter && s[0] == '-'
}

// missingValue returns the error message for a flag without a value.
func (m flagValue) missingValue() string {
	name := "--" + m.flag.Name
	of := m.flag.Target.Type()
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	switch {
	case of == reflect.TypeFor[time.Duration]():
		return name + " needs a value, such as 30s"
	case of.Kind() >= reflect.Int && of.Kind() <= reflect.Uint64:
		return name + " needs a value, such as 10"
	}
	return name + " needs a value, as in " + name + " " + strings.TrimSuffix(m.flag.FormatPlaceHolder(), ",...")
}

// nonEmptyArgument rejects empty names. They usually come from an unset shell variable.
type nonEmptyArgument struct {
	kong.Mapper
	value *kong.Value
}

func (m nonEmptyArgument) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if text, ok := ctx.Scan.Peek().Value.(string); ok && text == "" {
		return valueError(m.value.Summary() + ": must not be empty")
	}
	return m.Mapper.Decode(ctx, target)
}
