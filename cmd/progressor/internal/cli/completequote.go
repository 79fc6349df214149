package cli

import (
	"strings"
	"unicode"
)

// quoting describes how a shell quotes words. The zero value is for words without quotes.
type quoting struct {
	escape byte // quotes the next character outside of quotes; 0 if words have no quotes
	// The characters that the escape character can quote within single and within double quotes.
	single, double string
	doubled        bool // within quotes, a quote is written twice
	lastOnly       bool // the script passes only the last word with its quotes
	// quote returns a value in the form that replaces the typed word. If it is nil, the shell adds
	// the quotes.
	quote func(value string, typed typedWord) string
}

// posix contains the rules of bash and zsh for quotes in typed words.
var posix = quoting{escape: '\\', double: "$`\"\\"}

// shells contains the quoting of the shells whose scripts pass words with their quotes.
var shells = map[string]quoting{
	"bash": {escape: posix.escape, double: posix.double, quote: quoteBash},
	"zsh":  posix,
	"fish": {escape: '\\', single: `'\`, double: `"$\`, lastOnly: true},
	"powershell": {
		escape: '`', double: "$`\"", doubled: true,
		quote: func(value string, _ typedWord) string { return quotePowerShell(value) },
	},
}

// typedWord is a word as the user has typed it. It may end between quotes.
type typedWord struct {
	raw, text string // with and without quotes
	open      byte   // the quote that is still open; 0 if there is none
	before    int    // length of the text before that quote
	kept      int    // length of raw up to the last unquoted = or :, where bash splits words
}

// read returns a word without its quotes.
func (q *quoting) read(raw string) typedWord {
	if q.escape == 0 {
		return typedWord{raw: raw, text: raw}
	}
	w := typedWord{raw: raw}
	var text []byte
	for n := 0; n < len(raw); n++ {
		c, next := raw[n], byte(0)
		if n+1 < len(raw) {
			next = raw[n+1]
		}
		switch {
		case c == q.escape && w.open == 0 && next == 0: // nothing follows yet
		case c == q.escape && q.escapes(w.open, next), q.doubled && c == w.open && next == c:
			n++
			text = append(text, next)
		case w.open == 0 && (c == '\'' || c == '"'):
			w.open, w.before = c, len(text)
		case c == w.open:
			w.open = 0
		default:
			if w.open == 0 && (c == '=' || c == ':') {
				w.kept = n + 1
			}
			text = append(text, c)
		}
	}
	w.text = string(text)
	return w
}

// escapes reports whether the escape character quotes c. open is the quote that is open, or 0
// outside of quotes.
func (q *quoting) escapes(open, c byte) bool {
	switch {
	case c == 0:
		return false
	case open == '\'':
		return strings.IndexByte(q.single, c) >= 0
	case open == '"':
		return strings.IndexByte(q.double, c) >= 0
	}
	return true
}

// doubleQuotesBash quotes a value in double quotes. An exclamation mark is put in single quotes. In
// double quotes, bash would expand it from the history, and would keep a backslash before it.
var doubleQuotesBash = strings.NewReplacer("$", `\$`, "`", "\\`", `"`, `\"`, `\`, `\\`, "!", `"'!'"`)

// quoteBash returns the rest of the word after its open quote, or the whole word with backslashes.
// bash adds the closing quote. The part up to the last unquoted = or : stays as it was typed,
// because the script removes this part.
func quoteBash(value string, typed typedWord) string {
	switch typed.open {
	case '\'':
		return strings.ReplaceAll(value[typed.before:], "'", `'\''`)
	case '"':
		return doubleQuotesBash.Replace(value[typed.before:])
	}
	kept := typed.raw[:typed.kept]
	var quoted strings.Builder
	quoted.WriteString(kept)
	for _, c := range value[len(posix.read(kept).text):] {
		if !isPlain(c) && !strings.ContainsRune(",@^", c) {
			quoted.WriteByte('\\')
		}
		quoted.WriteRune(c)
	}
	return quoted.String()
}

// quotePowerShell returns a value as a single-quoted string, if PowerShell would change or split it
// otherwise. PowerShell also treats typographic quotes as quotes, and splits -a.b.
func quotePowerShell(value string) string {
	oneDash := strings.HasPrefix(value, "-") && !strings.HasPrefix(value, "--")
	if !oneDash && value != "" && strings.IndexFunc(value, func(c rune) bool { return !isPlain(c) }) < 0 {
		return value
	}
	var quoted strings.Builder
	for _, c := range value {
		if strings.ContainsRune("'‘’‚‛", c) {
			quoted.WriteRune(c)
		}
		quoted.WriteRune(c)
	}
	return "'" + quoted.String() + "'"
}

// isPlain reports whether a character within a word has no special meaning in any shell.
func isPlain(c rune) bool {
	return unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("_-./:=+%", c)
}
