package tidy

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

// The column limits. A tab counts as tabWidth columns.
const (
	maxTextColumns = 100 // comments, SQL, proto, shell and Markdown
	maxGoColumns   = 120 // Go code
	tabWidth       = 4
)

// structTag matches a line that ends with the tag of a field, which cannot be wrapped.
var structTag = regexp.MustCompile("`\\w+:\".*`$")

// bannedPhrases matches words and phrases that are not plain English in a program. Words that have
// a legitimate use, such as "nobody" or "gives", are not in this list.
var bannedPhrases = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	`anew`, `mend(s|ed|ing)?`, `in vain`, `whom it concerns`, `beside`, `for ever`,
	`reckon(s|ed|ing)?`, `(tell|tells|told) whether`, `where there is none`, `how manieth`,
	`tells? of`, `at the most`, `the want of`, `the like of`, `out of touch`, `nobody whom`,
	`goes on`, `went on`, `tried again`, `passed (its|the|their) timeout`, `a moment ago`,
}, `|`) + `)\b`)

// subjectless matches a comment behind code that begins with "of". The name of a field is not its
// subject: "Timeout // of the wait" does not say whether it is a limit or a default.
var subjectless = regexp.MustCompile(`\S\s+// of [a-z]`)

var proseExtensions = map[string]bool{
	".go": true, ".sql": true, ".proto": true, ".md": true, ".sh": true, ".ts": true, ".tsx": true,
}

// prose checks the words and the line lengths of a file.
func prose(name string, content []byte) []string {
	if !isProse(name, content) {
		return nil
	}
	return append(phrases(name, content), columns(name, content)...)
}

// isProse reports whether the rules for prose apply to a file: people wrote it, in a checked
// language.
func isProse(name string, content []byte) bool {
	generated := strings.HasPrefix(name, "console/src/gen/") || generatedHeader.Match(content)
	return proseExtensions[path.Ext(name)] && !generated
}

func phrases(name string, content []byte) []string {
	if strings.HasPrefix(name, "internal/tidy/prose") { // it contains the banned phrases
		return nil
	}
	var violations []string
	for i, line := range strings.Split(string(content), "\n") {
		if phrase := bannedPhrases.FindString(line); phrase != "" {
			violations = append(violations, fmt.Sprintf("%s:%d: %q: say it in plain English", name, i+1, phrase))
		}
		if path.Ext(name) == ".go" && subjectless.MatchString(line) {
			violations = append(violations,
				fmt.Sprintf("%s:%d: a comment begins with \"of\": name its subject", name, i+1))
		}
	}
	return violations
}

func columns(name string, content []byte) []string {
	ext := path.Ext(name)
	if ext == ".ts" || ext == ".tsx" || name == "docs/reference.md" { // generated from the proto files
		return nil
	}
	var violations []string
	fenced := false
	for i, line := range strings.Split(string(content), "\n") {
		limit := maxTextColumns
		switch ext {
		case ".md":
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
			}
			code := fenced || strings.HasPrefix(line, "    ")
			if code || strings.HasPrefix(line, "|") || strings.Contains(line, "](") {
				continue
			}
		case ".go":
			comment := strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(comment, "//go:"):
				continue
			case strings.HasPrefix(comment, "//"):
			case structTag.MatchString(line):
				continue
			default:
				limit = maxGoColumns
			}
		}
		if strings.Contains(line, "://") {
			continue
		}
		width := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", strings.Repeat(" ", tabWidth)))
		if width > limit {
			violations = append(violations, fmt.Sprintf("%s:%d: %d columns, at most %d", name, i+1, width, limit))
		}
	}
	return violations
}
