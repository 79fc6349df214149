package cron

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/cron"
)

const oneDay = 24 * time.Hour

// drawPreview prints a schedule in words, a calendar of the days on which it fires, and the times
// on these days.
func drawPreview(w io.Writer, schedule *cron.Schedule, from, to time.Time) error {
	days, err := firingDays(schedule, from, to)
	if err != nil {
		return err
	}
	zone := schedule.Location()
	fmt.Fprintf(w, "%s\n", output.OneLine(schedule.Words()))
	if next, ok := schedule.Next(from.Add(-1)); ok {
		fmt.Fprintf(w, "first: %s\n", next.In(zone).Format("Mon 2006-01-02 15:04:05 -07:00"))
	}
	fires := map[time.Time]bool{}
	for _, d := range days {
		fires[d.date] = true
	}
	first, last := dateOf(from.In(zone)), dateOf(to.Add(-1).In(zone))
	for month := first.AddDate(0, 0, 1-first.Day()); !month.After(last); month = month.AddDate(0, 1, 0) {
		fmt.Fprint(w, "\n"+drawMonth(month, first, last, fires))
	}
	if len(days) == 0 {
		_, err = fmt.Fprintf(w, "\nno fire times before %s\n", to.In(zone).Format("2006-01-02 15:04"))
		return err
	}
	fmt.Fprintln(w)
	var rows []table.Row
	for _, g := range groupDays(days) {
		rows = append(rows, table.Row{showDates(g.dates), output.Thousands(int64(g.fires)), showTimes(g.firingDay)})
	}
	return output.PrintRows(w, table.Row{"days", "fires a day", "times"}, rows)
}

// dateOf returns noon of a local day, in UTC.
func dateOf(local time.Time) time.Time {
	year, month, day := local.Date()
	return time.Date(year, month, day, 12, 0, 0, 0, time.UTC)
}

// drawMonth draws the calendar of a month from first to last, with brackets around the days that
// have fires.
func drawMonth(month, first, last time.Time, fires map[time.Time]bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n Mo   Tu   We   Th   Fr   Sa   Su\n", month.Format("January 2006"))
	column := (int(month.Weekday()) + 6) % 7
	line := strings.Repeat("     ", column)
	for day := month; day.Month() == month.Month(); day = day.Add(oneDay) {
		switch {
		case fires[day]:
			line += fmt.Sprintf("[%2d] ", day.Day())
		case day.Before(first) || day.After(last):
			line += "     "
		default:
			line += fmt.Sprintf(" %2d  ", day.Day())
		}
		if column = (column + 1) % 7; column == 0 || day.Add(oneDay).Month() != month.Month() {
			if line = strings.TrimRight(line, " "); line != "" {
				b.WriteString(line + "\n")
			}
			line = ""
		}
	}
	return b.String()
}

// dayGroup is a group of days with the same times.
type dayGroup struct {
	firingDay
	dates []time.Time
}

func groupDays(days []firingDay) []*dayGroup {
	var groups []*dayGroup
days:
	for _, d := range days {
		for _, g := range groups {
			if g.same(d) {
				g.dates = append(g.dates, d.date)
				continue days
			}
		}
		groups = append(groups, &dayGroup{firingDay: d, dates: []time.Time{d.date}})
	}
	return groups
}

// showDates lists dates with consecutive days as ranges, such as "21 Nov, 23-27 Nov, 30 Nov-4 Dec".
func showDates(dates []time.Time) string {
	var parts []string
	for i := 0; i < len(dates); {
		j := i
		for j+1 < len(dates) && dates[j+1].Equal(dates[j].Add(oneDay)) {
			j++
		}
		begin, end := dates[i], dates[j]
		switch {
		case i == j:
			parts = append(parts, begin.Format("2 Jan"))
		case begin.Month() == end.Month() && begin.Year() == end.Year():
			parts = append(parts, begin.Format("2")+"-"+end.Format("2 Jan"))
		default:
			parts = append(parts, begin.Format("2 Jan")+"-"+end.Format("2 Jan"))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

func showTimes(d firingDay) string {
	text := strings.Join(d.times, " ")
	if d.fires > len(d.times) {
		text += " … " + d.last
	}
	return text
}
