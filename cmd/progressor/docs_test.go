package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// silentMetrics contains the metrics that a new engine does not export, each with the reason.
var silentMetrics = map[string]string{
	"progressor_rpc_duration_seconds":                     "a duration",
	"progressor_request_preparing_duration_ms":            "a duration",
	"progressor_task_processing_duration_ms":              "a duration",
	"progressor_process_removing_duration_ms":             "a duration",
	"progressor_job_duration_seconds":                     "a duration",
	"progressor_jobs":                                     "has the label name",
	"progressor_job_lease_losses_total":                   "has the label name",
	"progressor_job_start_deadlines_total":                "has the label name",
	"progressor_job_blocked_seconds_total":                "has the label constraint",
	"progressor_sink_changes_delivered_total":             "has the label sink_id",
	"progressor_sink_dead_letters_total":                  "has the label sink_id",
	"progressor_sink_failures_total":                      "has the label sink_id",
	"progressor_sink_lag_changes":                         "has the label sink_id",
	"progressor_sink_lag_seconds":                         "has the label sink_id",
	"progressor_sink_state":                               "has the label sink_id",
	"progressor_tls_certificate_expiry_timestamp_seconds": "exists only with TLS",
	"progressor_oidc_key_reads_total":                     "exists only with an issuer",
}

// docs/operations.md contains every metric of a scrape. All other metrics on the page are in
// silentMetrics.
func TestOperationsNamesEveryMetric(t *testing.T) {
	t.Parallel()
	page := readPage(t, "docs/operations.md")
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn",
		storagetest.DSN(t, storagetest.WithoutInvariants()),
		"--tracing.endpoint", "http://127.0.0.1:1", "--tracing.ratio", "0")
	d.Client.OK(t, "namespace", "put", "echo", "--builtin", "echo")
	code, scrape := clitest.Fetch(t, d.URL+"/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d", code)
	}
	exposed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# HELP ((?:progressor|pgxpool)_[a-z_]+) `).FindAllStringSubmatch(scrape,
		-1) {
		exposed[m[1]] = true
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:progressor|pgxpool)_[a-z_]+)`").FindAllStringSubmatch(page, -1) {
		named[m[1]] = true
	}
	inAlert := regexp.MustCompile(`\((progressor_[a-z_]+?)(?:_bucket|_count|_sum)?[{\[)]`)
	for _, m := range inAlert.FindAllStringSubmatch(page, -1) {
		named[m[1]] = true
	}
	if len(exposed) < 20 {
		t.Errorf("only %d metrics in\n%s", len(exposed), scrape)
	}
	for name := range exposed {
		if !named[name] {
			t.Errorf("docs/operations.md does not name the metric %s", name)
		}
	}
	for name := range named {
		if !exposed[name] && silentMetrics[name] == "" {
			t.Errorf("docs/operations.md names %s, which /metrics does not show", name)
		}
	}
}

// columnsOfSQL returns the comment of each column, by table or view, in the order of the columns.
const columnsOfSQL = `
SELECT c.relname::text, a.attname::text, coalesce(col_description(c.oid, a.attnum), '')
  FROM pg_class c
  JOIN pg_attribute a
    ON a.attrelid = c.oid
 WHERE c.relnamespace = 'progressor'::regnamespace
   AND c.relkind IN ('r', 'p', 'v')
   AND NOT c.relispartition
   AND c.relname NOT LIKE 'goose%'
   AND a.attnum > 0
   AND NOT a.attisdropped
 ORDER BY c.relname, a.attnum`

// The column tables of docs/sql.md contain the comments of the columns (COMMENT ON). -update
// rewrites the comments, and keeps the names in the reference, which some tables have in the second
// column.
func TestSQLPageHasEveryColumn(t *testing.T) {
	t.Parallel()
	page := readPage(t, "docs/sql.md")
	conn, err := pgx.Connect(t.Context(), storagetest.DSN(t, storagetest.WithoutInvariants()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), columnsOfSQL)
	if err != nil {
		t.Fatal(err)
	}
	comments, err := pgx.CollectRows(rows, pgx.RowToStructByPos[tableColumn])
	if err != nil || len(comments) < 400 {
		t.Fatalf("%d columns, %v", len(comments), err)
	}
	columns := map[string][]tableColumn{}
	for _, c := range comments {
		columns[c.Table] = append(columns[c.Table], c)
	}
	want := page
	first, _, _ := strings.Cut(page, "\n## Each table\n")
	for table, columns := range columns {
		if !strings.Contains(first, "`"+table+"`") {
			t.Errorf("docs/sql.md: the list of tables lacks %s", table)
		}
		want = withColumns(t, want, table, columns)
	}
	if want == page {
		return
	}
	if !*update {
		t.Fatal("docs/sql.md differs from the comments in migrations/: go test ./cmd/progressor -run SQLPage -update")
	}
	if err := os.WriteFile("../../docs/sql.md", []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tableColumn is a column of a table or view.
type tableColumn struct{ Table, Name, Comment string }

// columnTable matches the first Markdown table of a section that lists columns.
var columnTable = regexp.MustCompile(`(?m)^\| column \|.*\n\|[-|]+\|\n(?:\|.*\n)*`)

// withColumns replaces the column table in the section of a table.
func withColumns(t *testing.T, page, table string, columns []tableColumn) string {
	before, section, found := strings.Cut(page, "\n### "+table+"\n")
	if !found {
		t.Errorf("docs/sql.md has no section %s", table)
		return page
	}
	section, after, next := strings.Cut(section, "\n### ")
	old := columnTable.FindString(section)
	if old == "" {
		t.Errorf("docs/sql.md: section %s has no column table", table)
		return page
	}
	references := map[string]string{}
	for line := range strings.Lines(old) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			references[strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[2])
		}
	}
	var list strings.Builder
	list.WriteString("| column | |\n|---|---|\n")
	if len(references) > 0 {
		list.Reset()
		list.WriteString("| column | reference | |\n|---|---|---|\n")
	}
	for _, c := range columns {
		comment := strings.ReplaceAll(c.Comment, "|", `\|`)
		if len(references) == 0 {
			fmt.Fprintf(&list, "| `%s` | %s |\n", c.Name, comment)
			continue
		}
		fmt.Fprintf(&list, "| `%s` | %s | %s |\n", c.Name, cmp.Or(references[c.Name], "–"), comment)
	}
	section = strings.Replace(section, old, list.String(), 1)
	if next {
		section += "\n### " + after
	}
	return before + "\n### " + table + "\n" + section
}

// The configuration file in docs/crons.md is valid.
func TestConfigurationFileOfCrons(t *testing.T) {
	_, text, _ := strings.Cut(readPage(t, "docs/crons.md"), "declares a namespace and a cron:\n\n```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	out := clitest.Program{Commands: newCommands}.OK(t, "config", "check", "-c", clitest.WriteConfig(t, "db: {dsn: 'postgres://localhost/x'}\n"+text))
	if out != "the configuration is valid: 1 namespace, 1 cron, 0 templates, 0 sinks\n" {
		t.Errorf("%s", out)
	}
}

// The crons in docs/crons.md that show the policies are valid, and together they contain the values
// that this test lists.
func TestPoliciesOfCrons(t *testing.T) {
	_, text, _ := strings.Cut(readPage(t, "docs/crons.md"), "These crons show each of the policies:\n\n```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	out := clitest.Program{Commands: newCommands}.OK(t, "config", "check", "-c", clitest.WriteConfig(t, "db: {dsn: 'postgres://localhost/x'}\n"+text))
	if out != "the configuration is valid: 1 namespace, 5 crons, 0 templates, 0 sinks\n" {
		t.Errorf("%s", out)
	}
	for _, line := range []string{
		"overlap_action: allow", "overlap_action: skip", "overlap_action: cancel_prev", "overlap_action: parallel",
		"overlap_action: buffer_one",
		"failure_action: skip", "failure_action: retry", "failure_action: backoff", "failure_action: half_open",
		"concurrency_policy: queue", "misfire_policy: skip", "misfire_policy: catch_up_limited",
	} {
		if !strings.Contains(text, "  "+line+"\n") {
			t.Errorf("the example lacks %s", line)
		}
	}
}

// The namespaces of the quick starts keep ended processes for 7 days.
func TestQuickStartsHaveARetention(t *testing.T) {
	pages, err := filepath.Glob("../../docs/quickstart/*.md")
	if err != nil || len(pages) < 4 {
		t.Fatal(pages, err)
	}
	put := regexp.MustCompile(`(?m)^.*(?:namespace put|PutNamespace) .*$`)
	for _, page := range pages {
		commands := put.FindAllString(readPage(t, strings.TrimPrefix(page, "../../")), -1)
		if len(commands) == 0 {
			t.Errorf("%s puts no namespace", page)
		}
		for _, command := range commands {
			if !strings.Contains(command, "--retention 168h") && !strings.Contains(command, `"retention": "604800s"`) {
				t.Errorf("%s: the namespace has no retention of 7 days: %s", page, command)
			}
		}
	}
}

// The diagrams of docs/concepts.md contain every status of a process, every state of a job and
// every decision of a cron, and no others.
func TestDiagramsNameEveryStatus(t *testing.T) {
	var statuses []string
	for _, status := range process.Statuses() {
		statuses = append(statuses, string(status))
	}
	enum := func(values map[string]int32, prefix string) (names []string) {
		for name, value := range values {
			if value != 0 {
				names = append(names, strings.TrimPrefix(name, prefix))
			}
		}
		return names
	}
	page := readPage(t, "docs/concepts.md")
	for _, diagram := range []struct {
		begin string
		node  *regexp.Regexp
		want  []string
	}{
		{"    [*] --> INIT", regexp.MustCompile(`(?m)(?:(?:^    )|(?:--> ))([A-Z_]{4,})\b`), statuses},
		{"    [*] --> SCHEDULED", regexp.MustCompile(`(?m)(?:(?:^    )|(?:--> ))([A-Z_]{4,})\b`),
			enum(progressorv1.JobState_value, "JOB_STATE_")},
		{"flowchart LR\n    t([a fire time", regexp.MustCompile(`\(\[([A-Z_]{4,})\]\)`),
			enum(progressorv1.Decision_value, "DECISION_")},
	} {
		_, text, found := strings.Cut(page, diagram.begin)
		text, _, _ = strings.Cut(diagram.begin+text, "```")
		drawn := map[string]bool{}
		for _, m := range diagram.node.FindAllStringSubmatch(text, -1) {
			drawn[m[1]] = true
		}
		got := slices.Sorted(maps.Keys(drawn))
		slices.Sort(diagram.want)
		if !found || !slices.Equal(got, diagram.want) {
			t.Errorf("the diagram with %q has %v, want %v", diagram.begin, got, diagram.want)
		}
	}
}

var (
	pageLink  = regexp.MustCompile(`\]\(([^)#: ]*)(#[^) ]*)?\)`)
	codeBlock = regexp.MustCompile("(?s)(?:^|\n)```.*?\n```") // may contain calls such as f[T](a)
)

// Links between pages lead to files and headings that exist.
func TestLinksAreValid(t *testing.T) {
	var pages []string
	for _, place := range []string{"docs/*.md", "docs/*/*.md", "examples/*/*.md", "sdk/*/*.md", "*.md"} {
		found, err := filepath.Glob("../../" + place)
		if err != nil || len(found) == 0 {
			t.Fatal(place, found, err)
		}
		pages = append(pages, found...)
	}
	links := 0
	headings := map[string][]string{} // by page
	for _, file := range pages {
		page := readPage(t, strings.TrimPrefix(file, "../../"))
		for _, m := range pageLink.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
			links++
			target := file
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(file), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the target of %s does not exist", file, m[0])
				continue
			}
			if m[2] == "" {
				continue
			}
			if headings[target] == nil {
				headings[target] = anchors(readPage(t, strings.TrimPrefix(target, "../../")))
			}
			if !slices.Contains(headings[target], m[2]) {
				t.Errorf("%s: %s: this heading does not exist", file, m[0])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links found", links)
	}
}

var (
	pageHeading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchors = regexp.MustCompile(`[^\pL\pN _-]`)
)

// anchors returns the anchors of a page's headings, as Markdown renderers generate them.
func anchors(page string) []string {
	var found []string
	for _, m := range pageHeading.FindAllStringSubmatch(page, -1) {
		name := strings.ToLower(notInAnchors.ReplaceAllString(m[1], ""))
		found = append(found, "#"+strings.ReplaceAll(name, " ", "-"))
	}
	return found
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
