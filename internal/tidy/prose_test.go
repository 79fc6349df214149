package tidy

import (
	"strings"
	"testing"
)

func TestProseCatches(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, tt := range []struct{ name, file, content, want string }{
		{"phrase in Go", "clean/a.go", "package a\n\n// It starts anew.\n", `a.go:3: "anew"`},
		{"phrase of several words", "clean/a.go", "package a\n\n// The task is tried again.\n", `"tried again"`},
		{"comment without a subject", "clean/a.go", "package a\n\nvar a int // of the wait\n", "name its subject"},
		{"phrase in SQL", "clean/a.sql", "-- kept for ever\n", `"for ever"`},
		{"phrase in proto", "clean/a.proto", "// Tells whether it runs.\n", `"Tells whether"`},
		{"phrase on a page", "clean/a.md", "It mends a process.\n", `"mends"`},
		{"phrase in a script", "clean/a.sh", "# waits in vain\n", `"in vain"`},
		{"phrase in the console", "clean/a.tsx", "<p>beside</p>\n", `"beside"`},
		{"long comment", "clean/a.go", "package a\n\n// " + long(98) + "\n", "101 columns, at most 100"},
		{"long code", "clean/a.go", "package a\n\nvar a = \"" + long(112) + "\"\n", "122 columns, at most 120"},
		{"long code of a checked path", "storage/jobs/a.go", "package a\n\nvar a = \"" + long(112) + "\"\n",
			"122 columns, at most 120"},
		{"comment after a tag", "clean/a.go",
			"package a\n\ntype a struct {\n\tb int `json:\"b\"` // " + long(100) + "\n}\n", "columns, at most 120"},
		{"tab", "clean/a.go", "package a\n\nfunc a() {\n\t// " + long(94) + "\n}\n", "101 columns"},
		{"long SQL", "clean/a.sql", "-- " + long(98) + "\n", "101 columns"},
		{"long page", "clean/a.md", long(101) + "\n", "101 columns"},
		{"after a fence", "clean/a.md", "```\n" + long(200) + "\n```\n" + long(101) + "\n", "a.md:4: 101 columns"},

		{"similar words", "clean/a.go", "package a\n\n// recommended, besides, forever, amend\n", ""},
		{"comment with a subject", "clean/a.go", "package a\n\nvar a int // limit of the wait\n", ""},
		{"identifier", "clean/a.go", "package a\n\nvar renewed = 1\n", ""},
		{"runes, not bytes", "clean/a.md", strings.Repeat("é", 100) + "\n", ""},
		{"table", "clean/a.md", "| " + long(200) + " |\n", ""},
		{"indented code on a page", "clean/a.md", "    " + long(200) + "\n", ""},
		{"URL", "clean/a.go", "package a\n\n// https://example.org/" + long(100) + "\n", ""},
		{"link", "clean/a.md", "[a](" + long(120) + ")\n", ""},
		{"tag", "clean/a.go",
			"package a\n\ntype a struct {\n\tb int `help:\"" + long(120) + "\"`\n}\n", ""},
		{"other file", "clean/a.yaml", "# anew " + long(200) + "\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			violations, err := File(tt.file, []byte(tt.content))
			if err != nil {
				t.Fatal(err)
			}
			check(t, violations, tt.want)
		})
	}
}
