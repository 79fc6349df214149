package tidy

import (
	"regexp"
	"strings"
)

// sqlToken matches one token of SQL. Its groups are a comment, a string, the tag of a dollar-quoted
// string, a quoted identifier, and a word. It does not support nested block comments.
var sqlToken = regexp.MustCompile(`(?s)` +
	`(--[^\n]*|/\*.*?\*/)` +
	`|((?:\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'))` +
	`|(\$(?:[A-Za-z_]\w*)?\$)` +
	`|"((?:[^"]|"")*)"` +
	`|([A-Za-z_]\w*)` +
	`|::|\$\d+|\d+|\S`)

// The tokens of a string, whose content is not code, and of the dollar quotes around a body.
const (
	aString   = "''"
	bodyBegin = "$("
	bodyEnd   = "$)"
)

// sqlTokens returns the tokens of SQL without comments. Words are in lower case. The bodies of
// functions, which are in dollar quotes, are part of the code.
func sqlTokens(sql string) []string {
	var tokens []string
	for len(sql) > 0 {
		at := sqlToken.FindStringSubmatchIndex(sql)
		if at == nil {
			return tokens
		}
		group := func(n int) (string, bool) {
			if at[2*n] < 0 {
				return "", false
			}
			return sql[at[2*n]:at[2*n+1]], true
		}
		rest := sql[at[1]:]
		if _, comment := group(1); comment {
			sql = rest
			continue
		}
		_, text := group(2)
		tag, dollar := group(3)
		quoted, identifier := group(4)
		word, isWord := group(5)
		switch {
		case text:
			tokens = append(tokens, aString)
		case dollar:
			var body string
			body, rest, _ = strings.Cut(rest, tag)
			tokens = append(append(append(tokens, bodyBegin), sqlTokens(body)...), bodyEnd)
		case identifier:
			tokens = append(tokens, quoted)
		case isWord:
			tokens = append(tokens, strings.ToLower(word))
		default:
			tokens = append(tokens, sql[at[0]:at[1]])
		}
		sql = rest
	}
	return tokens
}

// sqlStatements splits SQL into the tokens of its statements. The semicolons of a body in dollar
// quotes do not end a statement.
func sqlStatements(sql string) [][]string {
	var statements [][]string
	var statement []string
	depth := 0
	for _, token := range sqlTokens(sql) {
		switch {
		case token == bodyBegin:
			depth++
		case token == bodyEnd:
			depth--
		case token == ";" && depth == 0:
			statements = append(statements, statement)
			statement = nil
			continue
		}
		statement = append(statement, token)
	}
	if len(statement) > 0 {
		statements = append(statements, statement)
	}
	return statements
}
