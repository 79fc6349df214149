package tidy

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// emptyWords are words that have no meaning here, or that belong to other products. ARCHITECTURE.md
// has the glossary.
var emptyWords = map[string]bool{
	"workflow": true, "orchestration": true, "manager": true, "helper": true, "util": true, "common": true,
	"base": true, "impl": true, "data": true, "info": true,
}

// letters matches the words of an identifier. splitWords splits matches such as HTTPServer again.
var letters = regexp.MustCompile(`[A-Z]+[a-z]*|[a-z]+`)

// splitWords returns the words of an identifier: HTTP and Server for HTTPServer, data and dir for
// data_dir.
func splitWords(identifier string) []string {
	var words []string
	for _, run := range letters.FindAllString(identifier, -1) {
		capitals := strings.IndexFunc(run, unicode.IsLower)
		if capitals > 1 {
			words = append(words, run[:capitals-1])
			run = run[capitals-1:]
		}
		words = append(words, run)
	}
	return words
}

// emptyWord returns the first word of an identifier or a file name that is not allowed, or "".
func emptyWord(identifier string) string {
	for _, word := range splitWords(identifier) {
		word = strings.ToLower(word)
		if emptyWords[word] || emptyWords[strings.TrimSuffix(word, "s")] {
			return word
		}
	}
	return ""
}

// kindWords are the kinds that identifiers in the roots of engine and storage do not name.
var kindWords = map[string]bool{"cron": true, "flow": true, "job": true}

// kindWord returns the first word of an identifier that is the name of a kind, or "".
func kindWord(identifier string) string {
	for _, word := range splitWords(identifier) {
		if word = strings.TrimSuffix(strings.ToLower(word), "s"); kindWords[word] {
			return word
		}
	}
	return ""
}

func fileName(name string) []string {
	switch path.Ext(name) {
	case ".go", ".sql", ".proto", ".sh":
	default:
		return nil
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(name, path.Ext(name)), "/") {
		if word := emptyWord(part); word != "" {
			return []string{fmt.Sprintf("%s: %q in its name says nothing: name what it holds", name, word)}
		}
	}
	return nil
}
