package durablecheck

import (
	"slices"
	"strings"
)

// Class describes what a finding means for a process.
type Class string

// The classes.
const (
	// New is an operation that is not in the journal, although the process waits at a later one.
	// The next task performs it.
	New Class = "new"
	// Orphan is an entry of the journal for which the function does not ask, now or later. The
	// operation was removed or renamed.
	Orphan Class = "orphan"
	// Changed is an operation whose recorded input or value differs from that of the function.
	Changed Class = "changed"
	// Error stops the process: its next task fails, or the function returns an error.
	Error Class = "error"
)

// Classes lists the classes, the most severe one first.
var Classes = []Class{Error, Orphan, Changed, New}

// Report is what a build would do with a process.
type Report struct {
	Function string    `json:"function,omitempty"` // its name in the build
	Findings []Finding `json:"findings"`           // none if nothing changes for the process
	More     int       `json:"more,omitempty"`     // how many further findings there are
}

// Finding is one difference.
type Finding struct {
	Class  Class  `json:"class"`
	Kind   string `json:"kind,omitempty"` // the kind of the operation in the journal, such as step
	Name   string `json:"name,omitempty"` // the full name of the operation
	Detail string `json:"detail,omitempty"`
	Place  string `json:"place,omitempty"` // file and line of the operation, such as shop/order.go:42
}

// String returns the finding as a text, such as "step charge: has completed".
func (f Finding) String() string {
	text := f.Kind
	if f.Name != "" {
		text += " " + f.Name
	}
	switch {
	case f.Detail == "":
	case text == "":
		text = f.Detail
	default:
		text += ": " + f.Detail
	}
	if f.Place != "" {
		text += " (" + f.Place + ")"
	}
	return text
}

// Has reports whether there is a finding of a class.
func (r Report) Has(c Class) bool {
	for _, f := range r.Findings {
		if f.Class == c {
			return true
		}
	}
	return false
}

// Limits of a report.
const (
	maxFindings = 100
	maxDetail   = 1000 // bytes
)

// Limited returns the report with its most severe findings first. It truncates long details. It
// omits the findings above the limit and counts them in More.
func (r Report) Limited() Report {
	all := append([]Finding{}, r.Findings...)
	slices.SortStableFunc(all, func(a, b Finding) int {
		return slices.Index(Classes, a.Class) - slices.Index(Classes, b.Class)
	})
	limited := Report{Function: r.Function, Findings: all[:min(len(all), maxFindings)]}
	limited.More = len(all) - len(limited.Findings)
	for i, f := range limited.Findings {
		if len(f.Detail) > maxDetail {
			limited.Findings[i].Detail = strings.ToValidUTF8(f.Detail[:maxDetail], "") + "…"
		}
	}
	return limited
}
