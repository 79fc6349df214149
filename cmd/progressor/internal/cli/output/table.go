package output

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// statusColumns are the names of the columns and fields whose values have colors.
var statusColumns = []string{"status", "state", "decision"}

// PrintRows prints a table with a header, or "none" if there are no rows. Columns of numbers are
// aligned to the right. numbers lists the number columns whose cells are strings, such as "1,000"
// or "".
func PrintRows(w io.Writer, header table.Row, rows []table.Row, numbers ...string) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "none")
		return err
	}
	_, err := fmt.Fprintln(w, StyleOf(w).Rows(header, rows, numbers...))
	return err
}

// PrintList prints a table like PrintRows. If there are no rows, it prints the sentence empty on a
// terminal, and "none" in a pipe.
func PrintList(w io.Writer, empty string, header table.Row, rows []table.Row, numbers ...string) error {
	if len(rows) == 0 && StyleOf(w).Size != nil {
		_, err := fmt.Fprintln(w, empty)
		return err
	}
	return PrintRows(w, header, rows, numbers...)
}

// Minor is the title of a column that is omitted on a terminal if the table is too wide.
type Minor string

// Tally is the title of a column of counts that is omitted on a terminal if the table is too wide
// and all counts are zero.
type Tally string

// Whole is a cell that is cut last.
type Whole string

// Fits reports whether a table with all columns fits on the terminal.
func (s Style) Fits(header table.Row, rows []table.Row) bool {
	columns, _ := s.columns(header, rows, nil)
	limit := s.Columns()
	return limit == 0 || width(columns) <= limit
}

// MinorIf returns the title of a column that is Minor if minor is true, such as the namespace in a
// list of one namespace.
func MinorIf(minor bool, title string) any {
	if minor {
		return Minor(title)
	}
	return title
}

// Rows returns a table as text. If a row does not fit on a line of the terminal, it omits columns
// without values and Tally columns of zeros, then the fractions of seconds. If many long cells
// would be cut, it omits Minor columns, beginning at the left. Then it cuts long cells.
func (s Style) Rows(header table.Row, rows []table.Row, numbers ...string) string {
	limit, _ := s.size()
	columns, shown := s.columns(header, rows, numbers)
	if limit > 0 && width(columns) > limit {
		header, rows = withoutEmpty(header, rows)
		columns, shown = s.columns(header, rows, numbers)
	}
	if limit > 0 && width(columns) > limit {
		s.brief = true
		columns, shown = s.columns(header, rows, numbers)
	}
	for n := slices.IndexFunc(header, isMinor); limit > 0 && n >= 0 && isCrowded(columns, limit); {
		header, rows = without(n, header, rows)
		columns, shown = s.columns(header, rows, numbers)
		n = slices.IndexFunc(header, isMinor)
	}
	fit(columns, limit)
	t := newTable()
	var configs []table.ColumnConfig
	titles := make(table.Row, len(header))
	for n, c := range columns {
		titles[n] = s.Paint(c.title, Bold)
		if c.numbers {
			configs = append(configs,
				table.ColumnConfig{Number: n + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
		for _, row := range shown {
			row[n] = c.cell(s, row[n])
		}
	}
	t.SetColumnConfigs(configs)
	t.AppendHeader(titles)
	t.AppendRows(shown)
	return t.Render()
}

// columns returns the columns of a table, and its cells before they are cut.
func (s Style) columns(header table.Row, rows []table.Row, numbers []string) ([]column, []table.Row) {
	columns := make([]column, len(header))
	shown := make([]table.Row, len(rows))
	for r := range rows {
		shown[r] = make(table.Row, len(header))
	}
	for n := range header {
		name := fmt.Sprint(header[n])
		columns[n] = column{title: text.FormatUpper.Apply(name), numbers: slices.Contains(numbers, name),
			status: slices.Contains(statusColumns, name), whole: n == 0}
		for r, row := range rows {
			if n < len(row) {
				shown[r][n] = columns[n].add(s, row[n])
			}
		}
	}
	return columns, shown
}

// withoutEmpty returns a table without the columns that have no values, and without Tally columns
// of zeros. The first column stays.
func withoutEmpty(header table.Row, rows []table.Row) (table.Row, []table.Row) {
	filled := make([]bool, len(header))
	for n := range header {
		filled[n] = n == 0 || slices.ContainsFunc(rows, func(row table.Row) bool {
			if n >= len(row) {
				return false
			}
			text := (Style{}).Text(row[n])
			_, tally := header[n].(Tally)
			return text != "" && (!tally || text != "0")
		})
	}
	keep := func(row table.Row) (kept table.Row) {
		for n, value := range row[:min(len(row), len(header))] {
			if filled[n] {
				kept = append(kept, value)
			}
		}
		return kept
	}
	kept := make([]table.Row, len(rows))
	for n, row := range rows {
		kept[n] = keep(row)
	}
	return keep(header), kept
}

func isMinor(title any) bool {
	_, minor := title.(Minor)
	return minor
}

// without returns a table without one column.
func without(n int, header table.Row, rows []table.Row) (table.Row, []table.Row) {
	left := make([]table.Row, len(rows))
	for r, row := range rows {
		left[r] = row
		if n < len(row) {
			left[r] = slices.Delete(slices.Clone(row), n, n+1)
		}
	}
	return slices.Delete(slices.Clone(header), n, n+1), left
}

// column is a column of a table.
type column struct {
	title           string
	numbers, status bool
	whole           bool // contains IDs, numbers, times or statuses, which are cut last
	width           int  // width of the longest cell; later, the width to which cells are cut
}

// add returns a cell of the column before it is cut. It returns numbers unchanged, because the
// table aligns them.
func (c *column) add(s Style, value any) any {
	switch value.(type) {
	case Moment, nil:
		c.whole = c.whole || value != nil
		value = s.Text(value)
	case Phrase:
		value = s.Text(value)
	case Whole:
		c.whole = true
		value = s.Text(value)
	case string:
	default:
		c.whole = true
	}
	c.width = max(c.width, text.StringWidthWithoutEscSequences(c.title),
		text.StringWidthWithoutEscSequences(fmt.Sprint(value)))
	c.whole = c.whole || c.numbers || c.status
	return value
}

// cell returns a cell with the width and the color of the column.
func (c *column) cell(s Style, value any) any {
	t, ok := value.(string)
	if !ok {
		return value
	}
	t = text.Snip(t, c.width, "…")
	if c.status {
		return s.Status(t)
	}
	return t
}

const (
	columnGap = 2
	shortest  = 5  // width to which cells are cut, unless the title is longer
	readable  = 24 // width to which cells are cut only if no Minor column can be omitted
)

// isCrowded reports whether a row does not fit even if texts are cut to a readable width.
func isCrowded(columns []column, limit int) bool {
	cut := slices.Clone(columns)
	for n := range cut {
		if c := &cut[n]; !c.whole {
			c.width = min(c.width, max(readable, text.StringWidthWithoutEscSequences(c.title)))
		}
	}
	return width(cut) > limit
}

// width returns the width of a row.
func width(columns []column) int {
	total := -columnGap
	for _, c := range columns {
		total += c.width + columnGap
	}
	return total
}

// fit narrows the columns, beginning with the widest, until a row has at most limit characters. A
// limit of 0 means no limit. A terminal that is too narrow even for short cells wraps the lines.
func fit(columns []column, limit int) {
	over := width(columns) - limit
	for _, whole := range []bool{false, true} {
		for limit > 0 && over > 0 {
			widest := -1
			for n, c := range columns {
				least := max(shortest, text.StringWidthWithoutEscSequences(c.title))
				if (whole || !c.whole) && c.width > least && (widest < 0 || c.width > columns[widest].width) {
					widest = n
				}
			}
			if widest < 0 {
				break
			}
			columns[widest].width--
			over--
		}
	}
}

// Field is a line of PrintFields: a name and a value. It is omitted if its value is empty.
type Field [2]any

// PrintFields prints names and values, one per line. They are never cut.
func PrintFields(w io.Writer, fields ...Field) error {
	style := StyleOf(w)
	t := newTable()
	for _, f := range fields {
		name, value := style.Text(f[0]), style.Text(f[1])
		if slices.Contains(statusColumns, name) {
			value = style.Status(value)
		}
		if value != "" {
			t.AppendRow(table.Row{style.Paint(name, Bold), value})
		}
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// newTable returns a table without borders.
func newTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", strings.Repeat(" ", columnGap)
	style.Format.Header = text.FormatDefault // Rows formats the titles, without breaking escape sequences
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	return t
}
