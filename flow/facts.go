package flow

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Facts are the inputs of a decision in addition to the plan and the state. A decision has no other
// inputs. If it lacks a fact, it lists the fact in Decision.Missing.
type Facts struct {
	Now time.Time
	// Items contains stored items by step: those that have begun in this round and have not ended,
	// and those that succeeded or were skipped.
	Items map[int][]Item
	// Rules evaluates the expressions of the template with the known values.
	Rules Rules
}

// Item is a stored item of a step.
type Item struct {
	Index  int
	Status StepStatus // Running, Succeeded or Skipped
	Hash   *int64     // hash of the item's value; nil if it was stored by a version without hashes
}

// Rules evaluates the expressions of a template at one moment of a decision. Its methods are pure:
// within a decision, they always return the same result, and they do not read from the database. If
// a method lacks a fact, its error is a Need.
type Rules interface {
	// Condition reports whether the condition of a step holds.
	Condition(d *Decision, step int) (bool, error)
	// Items returns the hashes of the items of a step with for_each.
	Items(d *Decision, step int) ([]int64, error)
	// Begin prepares the work of a step or an item. due is when a wait or a delay is due, or zero.
	// The effect contains the returned work, even if there is an error.
	Begin(d *Decision, step, index int) (work any, due time.Time, err error)
	// Collect returns the results of the items of a step that succeeds.
	Collect(d *Decision, step int) ([]byte, error)
	// Undo prepares the compensation of a step.
	Undo(d *Decision, step int) (work any, err error)
	// Result returns the result of a run whose steps have succeeded.
	Result(d *Decision) ([]byte, error)
}

// Need is a fact that a decision lacks. The methods of Rules return it as an error.
type Need struct {
	Kind NeedKind
	Step int // 0 for the payload
}

// NeedKind is the kind of a fact.
type NeedKind string

// The kinds of facts that a decision may lack.
const (
	NeedPayload NeedKind = "the payload of the run"
	NeedValue   NeedKind = "the result of step"
	NeedItems   NeedKind = "the list of items of step"        // see Facts.Items
	NeedResults NeedKind = "the list of item results of step" // for Rules.Collect
)

func (n Need) Error() string { return fmt.Sprintf("flow: %s %d is not loaded", n.Kind, n.Step) }

// lacks reports whether err is a Need, and adds it to the missing facts.
func (d *Decision) lacks(err error) bool {
	need, ok := errors.AsType[Need](err)
	if ok && !slices.Contains(d.Missing, need) {
		d.Missing = append(d.Missing, need)
	}
	return ok
}

// storedItems returns the stored items of a step. ok is false if they are not known.
func (d *Decision) storedItems(step int) (items []Item, ok bool) {
	if items, ok = d.facts.Items[step]; !ok {
		d.lacks(Need{NeedItems, step})
	}
	return items, ok
}
