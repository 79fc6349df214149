package tidy

import (
	"fmt"
	"regexp"
	"strings"
)

// minCTELetters is the minimum length of the name of a CTE. Shorter names are abbreviations.
const minCTELetters = 4

var (
	sqlComment = regexp.MustCompile(`--[^\n]*`)
	// sqlOffset does not match OFFSET 0, which only prevents inlining of a subquery.
	sqlOffset = regexp.MustCompile(`(?i)\boffset\s+[^\s0)]`)
	// sqlCTE matches a CTE. The query after the parenthesis distinguishes a CTE from a window.
	sqlCTE = regexp.MustCompile(`(?i)\b(\w+)(?:\s*\([\w\s,]*\))?\s+AS\s+(?:(?:NOT\s+)?MATERIALIZED\s+)?` +
		`\(\s*(?:\(|(?:SELECT|INSERT|UPDATE|DELETE|WITH|VALUES)\b)`)
)

// sqlFile rejects OFFSET and abbreviated names of CTEs in queries. No column has the name offset.
func sqlFile(name string, content []byte) []string {
	if !strings.HasPrefix(name, "sql/") {
		return nil
	}
	statements := sqlComment.ReplaceAll(content, nil)
	var violations []string
	if sqlOffset.Match(statements) {
		violations = append(violations, fmt.Sprintf("%s: OFFSET reads all rows that it skips: page by key", name))
	}
	for _, match := range sqlCTE.FindAllSubmatch(statements, -1) {
		if cte := match[1]; len(cte) < minCTELetters {
			violations = append(violations, fmt.Sprintf("%s: CTE %s: use a word of at least %d letters",
				name, cte, minCTELetters))
		}
	}
	return violations
}
