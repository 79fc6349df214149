package cli

import "testing"

// A value is quoted for PowerShell if it has characters with a meaning there.
func TestQuotePowerShell(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"order:1": "order:1", "--state=failed": "--state=failed", "größe": "größe", "a/b.c": "a/b.c", "": "''",
		"a b": "'a b'", "a,b": "'a,b'", "a;b": "'a;b'", "$a": "'$a'", `a"b`: `'a"b'`,
		"a'b": "'a''b'", "a’b": "'a’’b'",
		"a`b": "'a`b'", "(a)": "'(a)'", "{a}": "'{a}'", "a|b&c": "'a|b&c'", "<a>": "'<a>'", "@a": "'@a'", "#a": "'#a'",
		"a*?[b]": "'a*?[b]'", "~job/a": "'~job/a'", "-a.b": "'-a.b'", "--metadata=a b": "'--metadata=a b'",
	} {
		if got := quotePowerShell(value); got != want {
			t.Errorf("%s: %s, want %s", value, got, want)
		}
	}
}

// A value is quoted for bash after the part of the word that the script removes.
func TestQuoteBash(t *testing.T) {
	t.Parallel()
	q := shells["bash"]
	for _, c := range []struct{ typed, value, want string }{
		{`--name=a\ `, "--name=a b", `--name=a\ b`}, {`--na"me=`, "--name=a", `me=a`},
		{`a\ b:`, "a b:c d", `a\ b:c\ d`},
		{"~", "~job/a", `\~job/a`}, {"", "a|b&(c)", `a\|b\&\(c\)`}, {"", "a*[b]?#{c}!", `a\*\[b\]\?\#\{c\}\!`},
		{"'a'", "a b", `a\ b`}, {`"a\"b`, `a"b$c`, `a\"b\$c`},
		{`"a`, "a!b c!", `a"'!'"b c"'!'"`}, {`"a"'!'"`, "a!b!", `b"'!'"`},
		{"'a:b'", "a:b c", `a:b\ c`}, {`--x="a=b"c`, "--x=a=bc d", `--x=a=bc\ d`}, {`a\:b`, "a:b", "a:b"},
	} {
		if got := quoteBash(c.value, q.read(c.typed)); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.typed, c.value, got, c.want)
		}
	}
}
