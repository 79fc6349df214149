package flow

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// stepMarks are the symbols of the statuses of steps.
var stepMarks = map[progressorv1.StepStatus]string{
	progressorv1.StepStatus_STEP_STATUS_PENDING:   "○",
	progressorv1.StepStatus_STEP_STATUS_RUNNING:   "●",
	progressorv1.StepStatus_STEP_STATUS_SUCCEEDED: "✓",
	progressorv1.StepStatus_STEP_STATUS_FAILED:    "✗",
	progressorv1.StepStatus_STEP_STATUS_SKIPPED:   "–",
	progressorv1.StepStatus_STEP_STATUS_CANCELLED: "×",
}

// maxDepth limits the indentation of a tree of steps, so that lines fit on a terminal. Deeper steps
// have the indentation of their parent.
const maxDepth = 16

// drawSteps draws the steps of a run. In a graph, a step is below its dependency, or below the
// dependency that is drawn last. In a sequence, the steps are drawn one below the other. t is nil
// if the template could not be read.
func drawSteps(style output.Style, r *progressorv1.Run, t *progressorv1.Template) string {
	tree := &stepTree{steps: map[string]*progressorv1.Step{}, parents: map[string][]string{},
		children: map[string][]string{}, drawn: map[string]bool{}}
	var order []string
	for _, s := range r.GetSteps() {
		order = append(order, s.GetStepId())
		tree.steps[s.GetStepId()] = s
	}
	if t.GetStepOrder() == progressorv1.StepOrder_STEP_ORDER_GRAPH {
		for _, s := range t.GetSteps() {
			if tree.steps[s.GetStepId()] == nil {
				continue
			}
			tree.parents[s.GetStepId()] = s.GetDependsOn()
			for _, on := range s.GetDependsOn() {
				tree.children[on] = append(tree.children[on], s.GetStepId())
			}
		}
	}
	for _, id := range order {
		if len(tree.parents[id]) == 0 {
			tree.draw(id, "", "", "", 0)
		}
	}
	for _, id := range order {
		if !tree.drawn[id] { // the parent is not in the template version of this run
			tree.draw(id, "", "", "", 0)
		}
	}
	if len(tree.rows) == 0 {
		return "no steps\n"
	}
	return style.Rows(table.Row{"step", "status", "attempt", "took", "worker", "note"}, tree.rows) + "\n"
}

// stepTree draws a tree of steps.
type stepTree struct {
	steps             map[string]*progressorv1.Step
	parents, children map[string][]string
	drawn             map[string]bool
	rows              []table.Row
}

// draw adds a step and its descendants. branch is the line prefix of the step, and below is the
// line prefix of its descendants.
func (t *stepTree) draw(id, branch, below, parent string, depth int) {
	t.drawn[id] = true
	s := t.steps[id]
	attempt, duration := output.ID(int64(s.GetAttempt())), took(s.GetRunningTime(), s.GetFinishedTime())
	t.rows = append(t.rows, table.Row{
		branch + stepMarks[s.GetStatus()] + " " + id, output.Enum(s.GetStatus()), attempt, duration,
		output.OneLine(s.GetWorkerId()),
		output.OneLine(strings.Join(t.notes(s, parent), "; ")),
	})
	for {
		next := t.below(id)
		if next == "" {
			return
		}
		// The next sibling is known only after the descendants are drawn, because a join may be
		// placed among them.
		at := len(t.rows)
		switch {
		case depth >= maxDepth:
			t.draw(next, below, below, id, depth+1)
		default:
			t.draw(next, below+"└─ ", below+"   ", id, depth+1)
		}
		if depth < maxDepth && t.below(id) != "" {
			t.connect(at, below)
		}
	}
}

// below returns the next child whose dependencies have all been drawn.
func (t *stepTree) below(id string) string {
	for _, child := range t.children[id] {
		if !t.drawn[child] &&
			!slices.ContainsFunc(t.parents[child], func(p string) bool { return t.steps[p] != nil && !t.drawn[p] }) {
			return child
		}
	}
	return ""
}

// connect draws the line to the next sibling.
func (t *stepTree) connect(from int, below string) {
	for n := from; n < len(t.rows); n++ {
		cell, _ := t.rows[n][0].(string)
		rest := cell[len(below):]
		if n == from {
			rest = "├─ " + strings.TrimPrefix(rest, "└─ ")
		} else {
			rest = "│  " + strings.TrimPrefix(rest, "   ")
		}
		t.rows[n][0] = below + rest
	}
}

// notes returns the remarks about a step, in addition to its status.
func (t *stepTree) notes(s *progressorv1.Step, parent string) (notes []string) {
	var others, open []string
	for _, p := range t.parents[s.GetStepId()] {
		if p != parent {
			others = append(others, p)
		}
		if on := t.steps[p]; on != nil && on.GetFinishedTime() == nil {
			open = append(open, p)
		}
	}
	if len(others) > 0 && parent != "" {
		notes = append(notes, "also depends on "+strings.Join(others, ", "))
	}
	if s.GetStatus() == progressorv1.StepStatus_STEP_STATUS_PENDING && s.GetReason() == "" && len(open) > 0 {
		notes = append(notes, "waits for "+strings.Join(open, ", "))
	}
	if note := stepNote(s); note != "" {
		notes = append(notes, note)
	}
	return notes
}

// stepNote returns the progress of a step, what it waits for, or why it ended.
func stepNote(s *progressorv1.Step) string {
	var notes []string
	if items := s.GetItemsByStatus(); len(items) > 0 {
		notes = append(notes, showItems(s))
	}
	running := s.GetStatus() == progressorv1.StepStatus_STEP_STATUS_RUNNING
	if p := s.GetProgress(); p != nil && running {
		notes = append(notes, progressBar(p.GetPercent())+" "+output.ShowProgress(p))
	}
	if s.GetReason() != "" {
		notes = append(notes, s.GetReason())
	}
	if s.GetFailure() != nil {
		notes = append(notes, output.ShowFailure(s.GetFailure()))
	}
	if s.CompensationStatus != nil {
		notes = append(notes, map[progressorv1.StepStatus]string{
			progressorv1.StepStatus_STEP_STATUS_RUNNING:   "is being undone",
			progressorv1.StepStatus_STEP_STATUS_SUCCEEDED: "undone",
		}[s.GetCompensationStatus()])
		if notes[len(notes)-1] == "" {
			notes[len(notes)-1] = "undoing it: " + output.Enum(s.GetCompensationStatus())
		}
	}
	return strings.Join(notes, "; ")
}

// showItems shows the items of a step: a bar and their number by status.
func showItems(s *progressorv1.Step) string {
	var all, ended int64
	var parts []string
	items := s.GetItemsByStatus()
	for _, status := range slices.Sorted(maps.Keys(items)) {
		all += items[status]
		if status != "pending" && status != "running" {
			ended += items[status]
		}
		if status != "succeeded" {
			parts = append(parts, fmt.Sprintf("%s %s", output.Thousands(items[status]), status))
		}
	}
	text := fmt.Sprintf("%s of %s items ended", output.Thousands(ended), output.Thousands(all))
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	if s.GetStatus() == progressorv1.StepStatus_STEP_STATUS_RUNNING {
		return progressBar(100*float64(ended)/float64(max(all, 1))) + " " + text
	}
	return text
}

// progressBar draws a short bar.
func progressBar(percent float64) string {
	return output.Bar(min(max(percent, 0), 100)/100, 10)
}
