package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// WriteJSON writes the report as one JSON document.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// WriteTable writes the report as text: the machine, the rates, then the other figures.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	r.Machine.write(&b)
	rates := newTable()
	rates.AppendHeader(table.Row{
		"workload", "subject", "clients", "keys", "history", "ops/s", "p50 ms", "p99 ms", "WAL B/op", "PG µs/op",
		"engine µs/op", "batch", "ratio", "note",
	})
	figures := newTable()
	figures.AppendHeader(table.Row{"workload", "clients", "figure", "value", "unit"})
	for _, row := range r.Rows {
		if row.OpsPerSecond > 0 {
			rates.AppendRow(row.cells())
		}
		for _, f := range row.Figures {
			figures.AppendRow(table.Row{row.Workload, row.clients(), f.Name, number(&f.Value, 2), f.Unit})
		}
	}
	for _, t := range []table.Writer{rates, figures} {
		if t.Length() > 0 {
			b.WriteString("\n" + t.Render() + "\n")
		}
	}
	if !r.Machine.Durable() {
		b.WriteString("\nNo ratio: fsync, synchronous_commit or full_page_writes is off, so a crash of the " +
			"server can lose or corrupt data.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (m *Machine) write(b *strings.Builder) {
	where := "on another machine (its CPU is not known)"
	if m.Local {
		where = "on this machine"
	}
	fmt.Fprintf(b, "progressor %s, %s, %d cores; PostgreSQL %s %s\n", m.Program, m.Go, m.Cores, m.PostgreSQL, where)
	fmt.Fprintf(b, "fsync=%s synchronous_commit=%s full_page_writes=%s wal_init_zero=%s shared_buffers=%s",
		m.Fsync, m.SynchronousCommit, m.FullPageWrites, m.WALInitZero, m.SharedBuffers)
	if m.FdatasyncMillis != nil {
		fmt.Fprintf(b, " fdatasync=%.3fms", *m.FdatasyncMillis)
	}
	b.WriteByte('\n')
}

func (r *Row) cells() table.Row {
	keys, history := "off", r.History
	if r.Keys {
		keys = "on"
	}
	ratio := ""
	if r.Ratio != nil {
		ratio = fmt.Sprintf("%.2f × %s", *r.Ratio, r.RatioTo)
	}
	notes := []string{}
	if r.Metadata {
		notes = append(notes, "metadata")
	}
	if r.Note != "" {
		notes = append(notes, r.Note)
	}
	if broken := r.Broken(); len(broken) > 0 {
		notes = append(notes, "BROKEN: "+strings.Join(broken, ", "))
	}
	if r.Refused > 0 {
		notes = append(notes, fmt.Sprintf("%d refused", r.Refused))
	}
	return table.Row{
		r.Workload, r.Subject, r.clients(), keys, history, number(&r.OpsPerSecond, 0), number(r.P50Millis, 2),
		number(r.P99Millis, 2),
		number(r.WALBytes, 0), number(r.PostgresCPU, 0), number(r.EngineCPU, 0), number(r.FlushItems, 1), ratio,
		strings.Join(notes, ", "),
	}
}

func (r *Row) clients() string {
	if r.Clients == 0 {
		return ""
	}
	return strconv.Itoa(r.Clients)
}

// number formats a value with the given number of decimals and separated thousands. nil is unknown
// and becomes "".
func number(value *float64, decimals int) string {
	if value == nil {
		return ""
	}
	digits := strconv.FormatFloat(*value, 'f', decimals, 64)
	whole, fraction, _ := strings.Cut(digits, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	return sign + whole + fraction
}

// newTable returns a table in the style of the other commands, with numbers aligned to the right.
func newTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	var columns []table.ColumnConfig
	for _, name := range []string{"clients", "ops/s", "p50 ms", "p99 ms", "WAL B/op", "PG µs/op", "engine µs/op",
		"batch", "value"} {
		columns = append(columns, table.ColumnConfig{Name: name, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}
