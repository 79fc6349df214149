package tidy

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// Words that say nothing, or that name another product's idea of this one. docs/architecture.md has the words in use.
var emptyWords = map[string]bool{
	"workflow": true, "orchestration": true, "manager": true, "helper": true, "util": true, "common": true,
	"base": true, "impl": true, "data": true, "info": true,
}

// A run of letters as identifiers have them: Words, words, ID, and HTTPServer, of which splitWords makes two.
var letters = regexp.MustCompile(`[A-Z]+[a-z]*|[a-z]+`)

// splitWords takes an identifier apart: HTTPServer is HTTP and Server, data_dir is data and dir.
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

// emptyWord is the first word of an identifier, a file's or a directory's name that must not stand there, or "".
func emptyWord(identifier string) string {
	for _, word := range splitWords(identifier) {
		word = strings.ToLower(word)
		if emptyWords[word] || emptyWords[strings.TrimSuffix(word, "s")] {
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
