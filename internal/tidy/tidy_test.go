package tidy

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// go test runs in the directory of the package.
const root = "../.."

func TestTree(t *testing.T) {
	violations, err := Tree(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range violations {
		t.Error(violation)
	}
}

// Each struct in manyFields exists.
func TestManyFields(t *testing.T) {
	structs := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^type (\w+) struct`)
	err := walk(root, func(name string, content []byte) error {
		for _, found := range declared.FindAllSubmatch(content, -1) {
			structs[path.Dir(name)+"."+string(found[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range manyFields {
		if !structs[name] {
			t.Errorf("%s is not a struct: remove it from manyFields", name)
		}
	}
}

func TestLadder(t *testing.T) {
	packages, err := ListPackages(root)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(packages, func(p Package) bool { return p.ImportPath == module+"/process" }) {
		t.Fatalf("go list names %d packages, but process is not among them", len(packages))
	}
	for _, violation := range Ladder(packages) {
		t.Error(violation)
	}
}

func TestLadderCatches(t *testing.T) {
	for _, tt := range []struct {
		name, from, imports, want string
	}{
		{"up", "storage", "engine", "level 2 imports level 5"},
		{"sideways", "engine/jobs", "engine/crons", "level 6 imports level 6"},
		{"sideways between level 0", "cron", "process", "level 0 imports level 0"},
		{"a kind in the engine", "engine", "engine/jobs", "level 5 imports level 6"},
		{"a kind in the base of kinds", "engine/actor", "engine/crons", "level 5 imports level 6"},
		{"the level of a parent is not the level of a child", "processor", "processor/remote",
			"level 2 imports level 3"},
		{"commands of another subject", commandLine + "/job", commandLine + "/flow", "level 13 imports level 13"},
		{"commands in the base of the command line", commandLine, commandLine + "/job",
			"level 12 imports level 13"},
		{"base of the command line in its output", commandLine + "/output", commandLine,
			"level 9 imports level 12"},
		{"test kit in a command", commandLine + "/job", commandLine + "/clitest", "for tests"},
		{"private server in a command", commandLine + "/job", "internal/pgembed", "for tests"},
		{"generated queries outside storage", "wire", "storage/internal/dbsqlc", "only storage"},
		{"test kit in a program", "cmd/progressor", "storage/storagetest", "for tests"},
		{"private server in the engine", "engine", "internal/pgembed", "for tests"},
		{"tidy itself", "cmd/progressor", "internal/tidy", "for tests"},
		{"no level", "storehouse", "process", "has no level"},
		{"input in a pure package", "process", "=os", "is pure"},
		{"database in a pure package", "cron", "=github.com/jackc/pgx/v5", "is pure"},
		{"random numbers in a pure package", "flow", "=math/rand/v2", "is pure"},

		{"down", "engine/rpc", "engine", ""},
		{"the engine in the base of kinds", "engine/actor", "engine", ""},
		{"inside a group", "processor/demo", "processor", ""},
		{"generated queries in a subpackage of storage", "storage/jobs", "storage/internal/dbsqlc", ""},
		{"connect clients belong to package proto", "client", "proto/progressor/v1/progressorv1connect", ""},
		{"dev's private server", commandLine + "/server", "internal/pgembed", ""},
		{"base of the command line in a command", commandLine + "/job", commandLine, ""},
		{"dev creates crons", commandLine + "/server", commandLine + "/cron", ""},
		{"test kits may import all", "storage/storagetest", "storage", ""},
		{"other modules", "engine", "=os", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			imported, outside := strings.CutPrefix(tt.imports, "=")
			if !outside {
				imported = module + "/" + tt.imports
			}
			check(t, Ladder([]Package{{ImportPath: module + "/" + tt.from, Imports: []string{imported}}}), tt.want)
		})
	}
}

func TestFileCatches(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("\t_ = 0\n", n) }
	fields := func(n int) string { return strings.Repeat("a, b int\n", n/2) + strings.Repeat("c int\n", n%2) }
	for _, tt := range []struct {
		name, file, content, want string
	}{
		{"long file", "engine/a.go", "package engine\n" + strings.Repeat("\n", maxFileLines), "501 lines"},
		{"long query file", "sql/a.sql", strings.Repeat("\n", maxFileLines+1), "501 lines"},
		{"long page", "README.md", strings.Repeat("\n", maxPageLines["README.md"]+1), "201 lines"},
		{"long version", "CHANGELOG.md", "# Changelog\n\n## 1.0\n" + strings.Repeat("- x\n", maxVersionLines),
			"1.0 has 81 lines"},
		{"long function", "engine/a.go", "package engine\nfunc A() {\n" + lines(maxFunctionLines) + "}\n",
			"func A has 72 lines"},
		{"long test", "engine/a_test.go", "package engine\nfunc TestA() {\n" + lines(maxTestFunctionLines) + "}\n",
			"func TestA has 142"},
		{"word in a file's name", "engine/task_helper.go", "package engine\n", `"helper" in its name`},
		{"word in a package's name", "engine/utils/a.go", "package utils\n", `"utils" in its name`},
		{"word in a query's name", "sql/task_info.sql", "SELECT 1;\n", `"info" in its name`},
		{"word in a type's name", "engine/a.go", "package engine\ntype TaskManager struct{}\n",
			`"manager" says nothing`},
		{"word in a type inside a function", "engine/a.go", "package engine\nfunc A() {\n\ttype rowData int\n}\n",
			`"data" says nothing`},
		{"word before a capital", "engine/a.go", "package engine\ntype BaseURL string\n", `"base" says nothing`},
		{"word after capitals", "engine/a.go", "package engine\ntype HTTPData []byte\n", `"data" says nothing`},
		{"many fields", "engine/a.go", "package engine\ntype A struct {\n" + fields(maxFields+1) + "}\n",
			"struct A has 21 fields"},
		{"more fields than it had", "processor/processortest/a.go",
			"package processortest\ntype Process struct {\n" + fields(99) + "}\n", "has 99 fields, and had"},
		{"fewer fields than it had", "processor/processortest/a.go",
			"package processortest\ntype Process struct {\n" + fields(2) + "}\n", "lower its number"},
		{"sleep", "engine/a_test.go", "package engine\nimport \"time\"\nfunc TestA() { time.Sleep(1) }\n",
			"time.Sleep in a test"},
		{"sleep by another name", "engine/a_test.go",
			"package engine\nimport z \"time\"\nfunc TestA() { z.Sleep(1) }\n", "time.Sleep in a test"},
		{"clock in a pure package", "flow/a.go", "package flow\nimport \"time\"\nvar now = time.Now\n",
			"package flow is pure"},
		{"wait in a pure package", "cron/a.go", "package cron\nimport z \"time\"\nvar a = z.After(1)\n",
			"package cron is pure"},
		{"unfinished Go", "engine/a.go", "package engine\n\n// TODO: more\n", "a.go:3: TODO"},
		{"unfinished SQL", "sql/a.sql", "-- FIXME\n", "a.sql:1: FIXME"},
		{"unfinished page", "docs/a.md", "FIXME\n", "FIXME"},
		{"unfinished Makefile", "Makefile", "# TODO\n", "TODO"},
		{"offset", "sql/a.sql", "SELECT 1\nlimit 1 offset 5;\n", "page by key"},
		{"abbreviated CTE", "sql/a.sql", "WITH up AS (SELECT 1)\nSELECT * FROM up;\n", "CTE up: use a word"},
		{"second abbreviated CTE", "sql/a.sql",
			"WITH input AS (SELECT 1),\ng AS NOT MATERIALIZED (SELECT 2)\nSELECT 1;\n", "CTE g: use a word"},
		{"abbreviated CTE with columns", "sql/a.sql",
			"WITH RECURSIVE n(i) AS (SELECT 1)\nSELECT 1;\n", "CTE n: use a word"},
		{"long line of a query", "sql/a.sql", strings.Repeat("x", 101) + "\n", "101 columns"},
		{"printed SQL", "storage/a.go",
			"package storage\nimport \"fmt\"\nvar a = fmt.Sprintf(`\n  SELECT %s`, \"x\")\n", "fmt.Sprintf of SQL"},
		{"printed sum", "storage/a.go", "package storage\nimport \"fmt\"\nvar a = fmt.Sprintf(\"UPDATE x \"+y, 1)\n",
			"fmt.Sprintf of SQL"},
		{"summed SQL", "storage/a.go", "package storage\nvar a = \"DELETE FROM \" + name()\n", "SQL by +"},

		{"kind in the engine", "engine/a.go", "package engine\nvar flowsDone int\n",
			`must not know the kind "flow"`},
		{"job in the storage", "storage/a.go", "package storage\ntype NewJob struct{}\n",
			`must not know the kind "job"`},
		{"kind in the storage", "storage/a.go", "package storage\nvar a = process.FlowKind\n",
			`must not know the kind "flow"`},

		{"time in a pure package", "flow/a.go", "package flow\nimport \"time\"\nvar a = time.Unix(1, 0)\n", ""},
		{"clock in a test", "flow/a_test.go", "package flow\nimport \"time\"\nvar now = time.Now\n", ""},
		{"kind in a subpackage", "engine/flows/a.go", "package flows\nvar flowsDone int\n", ""},
		{"kind in a test", "engine/a_test.go", "package engine\nvar flowsDone int\n", ""},
		{"word that contains a kind", "engine/a.go", "package engine\nvar overflow int\n", ""},
		{"full file", "engine/a.go", "package engine\n" + strings.Repeat("\n", maxFileLines-1), ""},
		{"full page", "README.md", strings.Repeat("\n", maxPageLines["README.md"]), ""},
		{"full versions", "CHANGELOG.md", strings.Repeat("## 1.0\n"+strings.Repeat("- x\n", maxVersionLines-1), 2), ""},
		{"full function", "engine/a.go", "package engine\nfunc A() {\n" + lines(maxFunctionLines-2) + "}\n", ""},
		{"full struct", "engine/a.go", "package engine\ntype A struct {\n" + fields(maxFields) + "}\n", ""},
		{"many fields in a test", "engine/a_test.go", "package engine\ntype A struct {\n" + fields(99) + "}\n", ""},
		{"generated", "proto/a.pb.go",
			"// Code generated by x. DO NOT EDIT.\n\npackage a\n" + strings.Repeat("\n", maxFileLines), ""},
		{"words that only begin alike", "engine/database.go",
			"package engine\ntype Database struct{}\ntype Baseline int\n", ""},
		{"metadata is one word", "storage/metadata.go", "package storage\ntype Metadata []byte\n", ""},
		{"sleep under a fake clock", "engine/a_test.go",
			"package engine\nimport (\n\"time\"\n\"testing/synctest\"\n)\n" +
				"func TestA() { synctest.Test(t, func() { time.Sleep(1) }) }\n", ""},
		{"sleep in a program", "cmd/progressor/a.go", "package main\nimport \"time\"\nfunc a() { time.Sleep(1) }\n",
			""},
		{"offset 0", "sql/a.sql", "SELECT * FROM (SELECT 1 OFFSET 0) one;\n", ""},
		{"offset in a comment", "sql/a.sql", "-- never OFFSET\nSELECT 1;\n", ""},
		{"offset in a migration", "migrations/00001_a.sql", "CREATE TABLE a (\"offset\" bigint);\n", ""},
		{"CTEs with words", "sql/a.sql",
			"WITH input AS MATERIALIZED (SELECT 1),\nleft_jobs AS (SELECT n AS up FROM input AS i(n))\nSELECT 1;\n",
			""},
		{"window", "sql/a.sql", "SELECT rank() OVER w FROM t WINDOW v AS (PARTITION BY i), w AS (ORDER BY i);\n", ""},
		{"short CTE outside of queries", "migrations/00001_a.sql", "WITH up AS (SELECT 1)\nSELECT 1;\n", ""},
		{"full line of a query", "sql/a.sql", strings.Repeat("x", 100) + "\n", ""},
		{"printed text", "storage/a.go",
			"package storage\nimport \"fmt\"\nvar a = fmt.Sprintf(\"Select a process: %s\", \"x\")\n", ""},
		{"statement without parameters", "storage/a.go", "package storage\nvar a = \"CREATE DATABASE \" + name()\n",
			""},
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

// check expects one violation that contains want, or none if want is empty.
func check(t *testing.T, violations []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(violations) > 0:
		t.Errorf("got %q, want nothing", violations)
	case want != "" && (len(violations) != 1 || !strings.Contains(violations[0], want)):
		t.Errorf("got %q, want one that contains %q", violations, want)
	}
}
