package migrations_test

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/progressor-engine/progressor/migrations"
)

var (
	comment     = regexp.MustCompile(`(?m)^\s*--.*$`)
	quoted      = regexp.MustCompile(`(?s)\$\$.*?\$\$|'(?:[^']|'')*'`)
	newTable    = regexp.MustCompile(`(?i)CREATE TABLE (?:IF NOT EXISTS )?(\w+)`)
	newIndex    = regexp.MustCompile(`(?i)CREATE (?:UNIQUE )?INDEX (CONCURRENTLY )?(?:IF NOT EXISTS )?(\w+)\s+ON (\w+)`)
	comments    = regexp.MustCompile(`(?i)COMMENT ON COLUMN (\w+)\.`)
	altersTable = regexp.MustCompile(`(?i)ALTER TABLE (?:IF EXISTS )?(?:ONLY )?(\w+)`)
	constrains  = regexp.MustCompile(`(?i)ADD CONSTRAINT[^;]*`)
	breaking    = regexp.MustCompile(
		`(?i)\b(?:DROP (?:TABLE|COLUMN|VIEW|FUNCTION|TYPE|SEQUENCE|CONSTRAINT)|RENAME|ALTER COLUMN \w+ (?:SET DATA ` +
			`)?TYPE|SET NOT NULL|ADD VALUE)\b`)
)

// faults describes the statements of a migration that block or break running engines.
func faults(text string) (list []string) {
	up, _, _ := strings.Cut(text, "-- +goose Down")
	bare := quoted.ReplaceAllString(comment.ReplaceAllString(up, ""), "''")
	inTransaction := !strings.Contains(up, "-- +goose NO TRANSACTION")
	var created []string
	for _, m := range newTable.FindAllStringSubmatch(bare, -1) {
		created = append(created, m[1])
	}
	for _, m := range newIndex.FindAllStringSubmatch(bare, -1) {
		concurrently, name, table := m[1] != "", m[2], m[3]
		before, after, _ := strings.Cut(bare, m[0])
		switch {
		case slices.Contains(created, table):
		case !concurrently || inTransaction:
			list = append(list,
				fmt.Sprintf(
					"index %s of an existing table: use CREATE INDEX CONCURRENTLY, in a file with NO TRANSACTION",
					name))
		case !strings.Contains(before, "DROP INDEX CONCURRENTLY IF EXISTS "+name+";"):
			list = append(list,
				fmt.Sprintf("index %s: run DROP INDEX CONCURRENTLY IF EXISTS first, because a build may have failed",
					name))
		case !strings.Contains(before, "SET lock_timeout = 0;") || !strings.Contains(after, "RESET lock_timeout;"):
			list = append(list,
				fmt.Sprintf(
					"index %s: create it between SET lock_timeout = 0 and RESET lock_timeout, because it waits for "+
						"transactions without blocking others", name))
		}
	}
	if !inTransaction {
		list = append(list, faultsOfComments(bare, created)...)
	}
	var altered []string
	for _, m := range altersTable.FindAllStringSubmatch(bare, -1) {
		if !slices.Contains(created, m[1]) && !slices.Contains(altered, m[1]) {
			altered = append(altered, m[1])
		}
	}
	if inTransaction && len(altered) > 1 {
		list = append(list, fmt.Sprintf(
			"tables %s are locked in one transaction, which holds the first while it waits for the next: use a "+
				"migration for each", strings.Join(altered, ", ")))
	}
	for _, c := range constrains.FindAllString(bare, -1) {
		if len(altered) > 0 && !strings.Contains(c, "NOT VALID") {
			list = append(list,
				"a constraint reads the whole table under a lock: use NOT VALID, and VALIDATE CONSTRAINT in a later "+
					"migration")
		}
	}
	if what := breaking.FindString(bare); what != "" && !strings.Contains(bare, "FUNCTION oldest_engine()") {
		list = append(list, what+" breaks older engines: replace oldest_engine() to exclude them")
	}
	return list
}

// faultsOfComments describes the first comment outside a transaction that is set with a short lock
// timeout. If such a migration fails, a part of its comments remains set.
func faultsOfComments(bare string, created []string) (list []string) {
	for _, m := range comments.FindAllStringSubmatchIndex(bare, -1) {
		table := bare[m[2]:m[3]]
		before := bare[:m[0]]
		hasLimit := strings.LastIndex(before, "SET lock_timeout = 0;") <=
			strings.LastIndex(before, "RESET lock_timeout;")
		if !slices.Contains(created, table) && (hasLimit || !strings.Contains(bare[m[1]:], "RESET lock_timeout;")) {
			return []string{fmt.Sprintf("comment on a column of %s: set it between SET lock_timeout = 0 and RESET "+
				"lock_timeout, because it waits for a vacuum without blocking others", table)}
		}
	}
	return nil
}

// Two migrations with the same number cannot be applied.
func TestMigrationNumbersAreUnique(t *testing.T) {
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	byNumber := map[string]string{}
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		if other, taken := byNumber[number]; taken {
			t.Errorf("%s and %s have the same number", other, name)
		}
		byNumber[number] = name
	}
}

// Migrations are applied while engines run: see "Upgrades" in docs/operations.md.
func TestMigrationsLetEnginesRun(t *testing.T) {
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil || len(names) < 2 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(migrations.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		if version, err := goose.NumericComponent(name); err != nil || version <= migrations.Base {
			continue // the base creates an empty database
		}
		for _, fault := range faults(string(text)) {
			if name == "00128_sink_retries.sql" && strings.HasPrefix(fault, "comment on") {
				continue // it is older than this rule
			}
			t.Errorf("%s: %s", name, fault)
		}
	}
}

func TestFaultsAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"CREATE INDEX a ON tasks (b);":                                        "index a of an existing table",
		"CREATE INDEX CONCURRENTLY a ON tasks (b);":                           "NO TRANSACTION",
		"-- +goose NO TRANSACTION\nCREATE INDEX CONCURRENTLY a ON tasks (b);": "DROP INDEX",
		"-- +goose NO TRANSACTION\nDROP INDEX CONCURRENTLY IF EXISTS a;\nCREATE UNIQUE INDEX CONCURRENTLY a\n" +
			" ON tasks (b);": "lock_timeout",
		"ALTER TABLE tasks ADD COLUMN a int; ALTER TABLE events ADD COLUMN a int;": "tables tasks, events",
		"ALTER TABLE tasks ADD CONSTRAINT a CHECK (b > 0);":                        "NOT VALID",
		"ALTER TABLE tasks DROP COLUMN a;":                                         "DROP COLUMN",
		"ALTER TYPE task_type ADD VALUE 'X';":                                      "ADD VALUE",
		"CREATE TABLE a (b int);\nCREATE INDEX c ON a (b);\n" +
			"ALTER TABLE tasks ADD COLUMN d text DEFAULT 'DROP TABLE';": "",
		"ALTER TABLE tasks ADD COLUMN a int;\n-- +goose Down\nALTER TABLE tasks DROP COLUMN a;": "",
	} {
		if got := strings.Join(faults(text), "; "); !strings.Contains(got, want) || (want == "" && got != "") {
			t.Errorf("%s\ngot %q, want %q", text, got, want)
		}
	}
}

func TestFaultsOfCommentsAreFound(t *testing.T) {
	const set, reset = "SET lock_timeout = 0;\n", "RESET lock_timeout;\n"
	const comment = "COMMENT ON COLUMN tasks.a IS 'x';\n"
	for text, want := range map[string]bool{
		comment:                               true,
		set + comment:                         true,
		set + reset + comment + reset:         true,
		set + comment + reset:                 false,
		"CREATE TABLE tasks (a);\n" + comment: false,
	} {
		if got := faults("-- +goose NO TRANSACTION\n" + text); (len(got) > 0) != want {
			t.Errorf("%s\ngot %q, want a fault: %t", text, got, want)
		}
	}
}
