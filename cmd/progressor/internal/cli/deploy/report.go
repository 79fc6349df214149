package deploy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/processor/durable/durablecheck"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// shownRuns is how many affected processes are printed without --all.
const shownRuns = 20

// result is the result of a check.
type result struct {
	Namespace  string           `json:"namespace"`
	Checked    int              `json:"checked"`
	Same       int              `json:"same"`
	Affected   int              `json:"affected"`
	Failing    int              `json:"failing"` // those with a finding of a class in --fail-on
	Skipped    int              `json:"skipped"` // they are not durable functions
	Classes    map[string]int   `json:"classes"` // affected processes by class
	Findings   []*sharedFinding `json:"findings"`
	Runs       []affectedRun    `json:"runs"`
	NotChecked []uncheckedRun   `json:"not_checked"`

	ignored map[string]bool
	shared  map[durablecheck.Finding]*sharedFinding
}

// sharedFinding is a finding about several processes. * stands for the indexes in its name.
type sharedFinding struct {
	durablecheck.Finding
	Runs    int    `json:"runs"`
	Example string `json:"example"` // the ID of a process
}

type affectedRun struct {
	ProcessID string                 `json:"process_id"`
	Status    string                 `json:"status"`
	Findings  []durablecheck.Finding `json:"findings"`
	More      int                    `json:"more,omitempty"` // further findings that are not listed
}

// uncheckedRun is a process that could not be checked.
type uncheckedRun struct {
	ProcessID string `json:"process_id"`
	Status    string `json:"status"`
	Reason    string `json:"reason"`
}

func newResult(namespace string, ignored []string) *result {
	r := &result{Namespace: namespace, Classes: map[string]int{}, Findings: []*sharedFinding{}, Runs: []affectedRun{},
		NotChecked: []uncheckedRun{}, ignored: map[string]bool{}, shared: map[durablecheck.Finding]*sharedFinding{}}
	for _, name := range ignored {
		r.ignored[name] = true
	}
	return r
}

// index matches the index of a branch in a name, such as [1].
var index = regexp.MustCompile(`\[[0-9]+\]`)

func pattern(name string) string { return index.ReplaceAllString(name, "[*]") }

// add adds the report about a process.
func (r *result) add(p *progressorv1.Process, report durablecheck.Report) {
	r.Checked++
	report.Findings = slices.DeleteFunc(report.Findings, func(f durablecheck.Finding) bool {
		names := []string{f.Name, pattern(f.Name), f.Kind + ":" + f.Name, f.Kind + ":" + pattern(f.Name)}
		return f.Name != "" && slices.ContainsFunc(names, func(name string) bool { return r.ignored[name] })
	})
	if len(report.Findings)+report.More == 0 {
		r.Same++
		return
	}
	r.Affected++
	r.Runs = append(r.Runs, affectedRun{ProcessID: p.GetProcessId(), Status: output.Enum(p.GetStatus()),
		Findings: report.Findings, More: report.More})
	counted := map[durablecheck.Finding]bool{}
	for _, f := range report.Findings {
		f.Name, f.Detail = pattern(f.Name), pattern(f.Detail)
		if counted[f] {
			continue
		}
		counted[f] = true
		shared, ok := r.shared[f]
		if !ok {
			shared = &sharedFinding{Finding: f, Example: p.GetProcessId()}
			r.shared[f] = shared
			r.Findings = append(r.Findings, shared)
		}
		shared.Runs++
		shared.Example = min(shared.Example, p.GetProcessId())
	}
	for _, class := range durablecheck.Classes {
		if report.Has(class) {
			r.Classes[string(class)]++
		}
	}
}

// finish sorts the result and counts the processes with findings of the classes in failOn.
func (r *result) finish(failOn []string) {
	slices.SortFunc(r.Runs, func(a, b affectedRun) int { return cmp.Compare(a.ProcessID, b.ProcessID) })
	slices.SortFunc(r.NotChecked, func(a, b uncheckedRun) int { return cmp.Compare(a.ProcessID, b.ProcessID) })
	slices.SortFunc(r.Findings, func(a, b *sharedFinding) int {
		return cmp.Or(severity(a.Class)-severity(b.Class), b.Runs-a.Runs, cmp.Compare(a.String(), b.String()))
	})
	for _, run := range r.Runs {
		if slices.ContainsFunc(run.Findings, func(f durablecheck.Finding) bool {
			return slices.Contains(failOn, string(f.Class))
		}) {
			r.Failing++
		}
	}
}

func severity(c durablecheck.Class) int { return slices.Index(durablecheck.Classes, c) }

// progress returns the line that is shown during the check.
func (r *result) progress() string {
	return fmt.Sprintf("%s checked, %d affected", processes(r.Checked), r.Affected)
}

// print prints the result and returns the error for the exit code.
func (c *checkCmd) print(a *cli.App, r *result) error {
	r.finish(c.FailOn)
	var err error
	if c.JSON() {
		err = output.PrintJSON(a.Stdout, r)
	} else {
		err = c.printTables(a.Stdout, r)
	}
	unchecked := fmt.Sprintf("%s could not be checked", processes(len(r.NotChecked)))
	switch {
	case err != nil:
		return err
	case r.Failing > 0:
		text := fmt.Sprintf("the new build affects %s with findings of the class %s", processes(r.Failing),
			strings.Join(c.FailOn, " or "))
		if len(r.NotChecked) > 0 {
			text += ", and " + unchecked
		}
		return &cli.CodedError{Code: cli.ExitFailed, Err: errors.New(text)}
	case len(r.NotChecked) > 0:
		return &cli.CodedError{Code: cli.ExitTaskFailed, Err: errors.New(unchecked)}
	}
	return nil
}

func (c *checkCmd) printTables(w io.Writer, r *result) error {
	if len(r.Findings) > 0 {
		var rows []table.Row
		for _, f := range r.Findings {
			what := f.Finding
			what.Place = ""
			rows = append(rows, table.Row{f.Runs, string(f.Class), output.OneLine(what.String()),
				output.OneLine(f.Place)})
		}
		if err := output.PrintRows(w, table.Row{"processes", "class", "finding", "place"}, rows); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	if err := c.printRuns(w, r); err != nil {
		return err
	}
	if err := c.printUnchecked(w, r); err != nil {
		return err
	}
	summary := fmt.Sprintf("%s checked: %d same, %d affected", processes(r.Checked), r.Same, r.Affected)
	var classes []string
	for _, class := range durablecheck.Classes {
		if n := r.Classes[string(class)]; n > 0 {
			classes = append(classes, fmt.Sprintf("%s %d", class, n))
		}
	}
	if len(classes) > 0 {
		summary += " (" + strings.Join(classes, ", ") + ")"
	}
	if r.Skipped == 1 {
		summary += "; 1 skipped (not a durable function)"
	} else if r.Skipped > 1 {
		summary += fmt.Sprintf("; %d skipped (not durable functions)", r.Skipped)
	}
	if n := len(r.NotChecked); n > 0 {
		summary += fmt.Sprintf("; %d not checked", n)
	}
	_, err := fmt.Fprintln(w, summary)
	return err
}

func processes(n int) string {
	if n == 1 {
		return "1 open process"
	}
	return output.Thousands(int64(n)) + " open processes"
}

// printRuns prints a line for each affected process.
func (c *checkCmd) printRuns(w io.Writer, r *result) error {
	var rows []table.Row
	for _, run := range r.Runs {
		var findings []string
		for _, f := range run.Findings {
			findings = append(findings, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Class, f.Kind, f.Name)))
		}
		text := strings.Join(findings, ", ")
		if run.More > 0 {
			text += fmt.Sprintf(", and %d more", run.More)
		}
		rows = append(rows, table.Row{output.OneLine(run.ProcessID), run.Status, output.OneLine(text)})
	}
	return c.printLines(w, table.Row{"process", "status", "findings"}, rows)
}

// printUnchecked prints a line for each process that could not be checked.
func (c *checkCmd) printUnchecked(w io.Writer, r *result) error {
	var rows []table.Row
	for _, run := range r.NotChecked {
		rows = append(rows, table.Row{output.OneLine(run.ProcessID), run.Status, run.Reason})
	}
	return c.printLines(w, table.Row{"process", "status", "not checked"}, rows)
}

// printLines prints the first rows of a table, unless it is empty, and how many are left.
func (c *checkCmd) printLines(w io.Writer, head table.Row, rows []table.Row) error {
	if len(rows) == 0 {
		return nil
	}
	shown := rows
	if len(shown) > shownRuns && !c.All {
		shown = shown[:shownRuns]
	}
	if err := output.PrintRows(w, head, shown); err != nil {
		return err
	}
	if more := len(rows) - len(shown); more > 0 {
		fmt.Fprintf(w, "… and %d more (--all prints them)\n", more)
	}
	_, err := fmt.Fprintln(w)
	return err
}
