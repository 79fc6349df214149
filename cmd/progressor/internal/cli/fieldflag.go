package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// commandLine is a parsed command line. It finds the flag or argument that sets a field of the
// request.
type commandLine struct {
	parsed *kong.Context // nil if no command was selected
}

// wrappers are the fields that contain the object of a request.
var wrappers = []string{"namespace", "constraint", "cron", "template", "sink"}

// indexes matches the indexes and map keys in the path of a field.
var indexes = regexp.MustCompile(`\[[^\]]*\]`)

// name returns the name of a field on the command line, such as --retention for
// namespace.retention, or <ns> for namespace. It returns "" if no flag or argument sets the field,
// or if the value may be from a file.
func (l commandLine) name(field string) string {
	if l.parsed == nil || field == "" {
		return ""
	}
	path := indexes.ReplaceAllString(field, "")
	flag, argument := l.flag(path), l.argument(path)
	if flag != nil && (argument == "" || l.isSet(flag.Name)) {
		index := ""
		if at := strings.LastIndexByte(field, '['); at >= 0 && strings.HasSuffix(field, "]") {
			index = field[at:]
		}
		return l.given(flag, index)
	}
	if argument != "" {
		return argument
	}
	// The value of a flag may be a JSON document that contains the field.
	end := strings.IndexAny(field, ".[")
	if end < 0 {
		return ""
	}
	if flag := l.flag(field[:end]); flag != nil && !flag.IsBool() {
		return l.given(flag, ": "+strings.TrimPrefix(field[end:], "."))
	}
	return ""
}

// given returns the name of a flag with a suffix. It returns "" if the flag is not set, but a file
// is: then the value is from the file.
func (l commandLine) given(flag *kong.Flag, suffix string) string {
	if !l.isSet(flag.Name) && l.isSet("file") {
		return ""
	}
	return "--" + flag.Name + suffix
}

// isSet reports whether the command line contains a flag.
func (l commandLine) isSet(name string) bool {
	return slices.ContainsFunc(l.parsed.Path, func(at *kong.Path) bool {
		return at.Flag != nil && !at.Resolved && at.Flag.Name == name
	})
}

// flag returns the flag that sets a field, or nil. The tag field of a flag contains the paths of
// its fields, without the wrapper. Flags without this tag have the name of their field.
func (l commandLine) flag(path string) *kong.Flag {
	if wrapper, inner, ok := strings.Cut(path, "."); ok && slices.Contains(wrappers, wrapper) {
		path = inner
	}
	name := strings.ReplaceAll(path, "_", "-")
	for _, flag := range l.parsed.Flags() {
		tagged := strings.Split(flag.Tag.Get("field"), ",")
		if slices.Contains(tagged, path) || !flag.Tag.Has("field") && (flag.Name == name || flag.Name+"s" == name) {
			return flag
		}
	}
	return nil
}

// argument returns the argument that sets a field, as in <ns>, or "".
func (l commandLine) argument(path string) string {
	if wrapper, inner, ok := strings.Cut(path, "."); ok && slices.Contains(wrappers, wrapper) {
		path = inner
	}
	selected := l.parsed.Selected()
	if selected == nil || strings.Contains(path, ".") {
		return ""
	}
	object, isID := strings.CutSuffix(path, "_id")
	found := ""
	for _, argument := range selected.Positional {
		switch name := argument.Name; {
		case name == path, name == "ns" && path == "namespace", isID && name == object:
			return "<" + name + ">"
		case isID && name == "id":
			found = "<id>"
		}
	}
	return found
}
