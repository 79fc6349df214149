package search

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/process"
)

func TestCanonicalForm(t *testing.T) {
	t.Parallel()
	for filter, want := range map[string]string{
		"":                              "",
		" \t\n":                         "",
		"status = ERROR":                "status = ERROR",
		`status="error"`:                "status = ERROR",
		"status!=PROCESS_STATUS_Init":   "status != INIT",
		`process_id = order-1*`:         `process_id = "order-1*"`,
		`process_id = 'o"1'`:            `process_id = "o\"1"`,
		`process_id = "a\*b\\\'\""`:     `process_id = "a\*b\\'\""`,
		`process_id = a.b`:              `process_id = "a.b"`,
		`process_id = *`:                `process_id = "*"`,
		`kind = ""`:                     `kind = ""`,
		"detail:*":                      "detail:*",
		`detail:"no book"`:              `detail:"no book"`,
		`detail != "zombie*"`:           `detail != "zombie*"`,
		"corrupted_by>=-5":              "corrupted_by >= -5",
		"corrupted_by : *":              "corrupted_by:*",
		"metadata:tenant":               "metadata.tenant:*",
		"metadata:*":                    "metadata:*",
		`metadata:"a key"`:              `metadata."a key":*`,
		"metadata.tenant=acme":          `metadata.tenant = "acme"`,
		`metadata."a.b".c = "1"`:        `metadata."a.b".c = "1"`,
		"metadata.n=1.50":               "metadata.n = 1.50",
		"metadata.n = -2e3":             "metadata.n = -2e3",
		"metadata.n = 007":              `metadata.n = "007"`,
		"metadata.vip = true":           "metadata.vip = true",
		`metadata.vip = "true"`:         `metadata.vip = "true"`,
		"metadata.tags:new":             `metadata.tags:"new"`,
		"metadata.tags:*":               "metadata.tags:*",
		"NOT status = ERROR":            "NOT status = ERROR",
		"-status = ERROR":               "NOT status = ERROR",
		"- (kind = a)":                  `NOT kind = "a"`,
		"NOT (NOT kind = a)":            `NOT (NOT kind = "a")`,
		"kind = a AND kind = b":         `kind = "a" AND kind = "b"`,
		"kind = a kind = b":             `kind = "a" AND kind = "b"`,
		"(kind = a AND kind=b) kind=c":  `kind = "a" AND kind = "b" AND kind = "c"`,
		"kind=a AND kind=b OR kind=c":   `kind = "a" AND (kind = "b" OR kind = "c")`,
		"(kind=a AND kind=b) OR kind=c": `(kind = "a" AND kind = "b") OR kind = "c"`,
		"kind=a OR (kind=b OR kind=c)":  `kind = "a" OR kind = "b" OR kind = "c"`,
		"(((status = INIT)))":           "status = INIT",
		"created_time > 2026-11-01T02:00:00+02:00 AND kind = " +
			"a": `created_time > "2026-11-01T00:00:00Z" AND kind = "a"`,
		`created_time<="2026-11-01T00:00:00.1234567Z"`:                 `created_time <= "2026-11-01T00:00:00.123456Z"`,
		strings.Repeat("(", 50) + "kind = a" + strings.Repeat(")", 50): `kind = "a"`,
	} {
		f, err := Parse(filter)
		if err != nil || f.String() != want {
			t.Errorf("%s: got %s, %v, want %s", filter, f, err, want)
		}
	}
}

// Invalid filters are rejected with an explanation, such as the position or the expected input.
func TestRefused(t *testing.T) {
	t.Parallel()
	for filter, want := range map[string]string{
		"stats = ERROR":                         `at character 1: there is no field "stats": use status, process_id,`,
		"status = ERROR AND tenant = acme":      `at character 20: there is no field "tenant"`,
		"status = BROKEN":                       `at character 10: "BROKEN" is not a status: use one of INIT, RUNNING,`,
		"status = E*":                           `is not a status`,
		"status > ERROR":                        "at character 1: status supports only = != (got >)",
		"status.x = ERROR":                      "status has no parts",
		"status":                                "write = != < <= > >= or : after status",
		"status = ":                             "at character 10: write a value",
		"status == ERROR":                       "at character 8: == is not an operator: write =",
		"status = ERROR and kind = a":           "at character 16: write AND in capitals",
		"status = ERROR AND":                    "the filter ends where a comparison is expected",
		"(status = ERROR":                       "at character 1: this ( has no matching )",
		"status = ERROR)":                       "at character 15: this ) has no matching (",
		"ERROR":                                 "a word alone is not a filter: compare a field",
		`"no book"`:                             "a text alone is not a filter",
		"= 5":                                   `"= 5" is not expected here`,
		"age(status) = 5":                       `functions such as "age" are not supported`,
		"created_time > now()":                  `functions such as "now" are not supported`,
		"created_time > yesterday":              `"yesterday" is not a time: created_time takes RFC 3339 times`,
		"created_time > 2026-11-01":             "is not a time",
		`created_time > "1969-01-01T00:00:00Z"`: "from 1970 to 9999",
		"created_time:*":                        "created_time supports only = != < <= > >= (got :)",
		"process_id = *-1":                      "* is a wildcard only at the end",
		`process_id > "a*"`:                     "* is a wildcard only at the end",
		"process_id = a**":                      "* is a wildcard only at the end",
		`process_id = "a`:                       "at character 14: the quote is not closed",
		`process_id = "a\n"`:                    `after \ write one of`,
		"kind = job*": "* is a wildcard only at the end of a value after = or != of " +
			"process_id, detail, reason or fingerprint",
		"kind < job":                     "kind supports only = != (got <)",
		"corrupted_by = one":             `"one" is not a whole number`,
		"corrupted_by:5":                 "write corrupted_by:*",
		"metadata = 5":                   "write metadata.KEY = VALUE",
		"metadata. = 5":                  "at character 10: write a key after the dot",
		`metadata."" = 5`:                "write a key",
		"metadata.tenant = ac*":          "metadata is compared in full",
		"metadata.vip < true":            "true has no order",
		"metadata.n = 1e999999":          "too long, too large or too small",
		"metadata.n = 1e-999999":         "too long, too large or too small",
		"metadata.a.b.c.d.e.f.g.h.i = 1": "at most 8 keys",
		"kind = ä \x00":                  "must be UTF-8 text without the character NUL",
		"kind = \xff":                    "must be UTF-8 text without the character NUL",
		"ä = 1":                          "at character 1",
		"kind = ä AND x = 1":             "at character 14",
		strings.Repeat("(", 51) + "kind = a" + strings.Repeat(")", 51):   "nested deeper than 50",
		strings.Repeat("kind=a ", 101):                                   "at most 100 comparisons",
		strings.Repeat("NOT (", 25) + "kind=a" + strings.Repeat(")", 25): "are nested deeper than 20",
	} {
		_, err := Parse(filter)
		invalid, ok := errors.AsType[*process.InvalidError](err)
		if !ok || invalid.Field != "filter" || !strings.Contains(invalid.Message, want) {
			t.Errorf("%s: got %v, want %s", filter, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		first, err := Parse(text)
		if err != nil {
			if _, ok := errors.AsType[*process.InvalidError](err); !ok {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		again, err := Parse(first.String())
		if err != nil || again.String() != first.String() {
			t.Fatalf("%q is %q, and that %q, %v", text, first, again, err)
		}
	})
}

// seeds are filters of every kind, and nearly valid ones.
var seeds = []string{
	"", "status = ERROR", `status = ERROR AND metadata.tenant = "acme"`,
	`-process_id = "order-*" OR (kind = "" detail:*)`,
	`created_time >= 2026-11-01T00:00:00Z AND NOT status_changed_time < "2026-11-02T00:00:00+01:00"`,
	`detail : "no \"book\""`,
	"corrupted_by > 5 corrupted_by:*", `metadata."a b".c != 1.5e3`, "metadata.n < 5 metadata.s > 'x'",
	"metadata:tenant metadata:*",
	"metadata.tags:new OR metadata.vip = true", `process_id > "a" process_id <= "b"`,
	"status = COMPLETED OR status = CANCELLED",
	"((((", "NOT", "a = = b", `"`, `metadata.`, "*", `process_id = "\`, "status = ERROR and x",
}

func FuzzPageToken(f *testing.F) {
	q := Query{Namespace: "n"}
	f.Add(token(q, OrderCreated, orders[OrderCreated].begin()))
	f.Add(token(q, OrderID, position{id: "p"}))
	f.Add("AQ")
	f.Add("\n" + token(q, OrderID, position{id: "p"}) + "\r")
	f.Fuzz(func(t *testing.T, text string) {
		for name := range orders {
			p, err := parseToken(text, q, name)
			if err != nil {
				if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "page_token" {
					t.Fatalf("%q: %v", text, err)
				}
				continue
			}
			if again := token(q, name, p); again != text {
				t.Fatalf("%q is %+v, and that %q", text, p, again)
			}
		}
	})
}

// The filters in docs/api.md are valid.
func TestFiltersInDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| filter | finds |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	shown := 0
	for line := range strings.Lines(table) {
		shown++
		_, filter, _ := strings.Cut(line, "`")
		filter, _, _ = strings.Cut(filter, "` |")
		if f, err := Parse(filter); err != nil || f.String() == "" {
			t.Errorf("%s: %v", filter, err)
		}
	}
	if shown != 10 {
		t.Errorf("docs/api.md has %d filters", shown)
	}
}
