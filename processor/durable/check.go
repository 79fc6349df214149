package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable/durablecheck"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	maxAssumed = 1000            // waits that one replay of a check ends by assumption
	maxLook    = 5 * time.Second // for one replay past the place where a process waits
)

// assumedValue is the value of an entry that a check assumes. It is not JSON, and never stored.
var assumedValue = json.RawMessage("assumed")

// assumed returns a value for an operation that has not happened. Pointers are not nil, so that
// most functions can continue.
func assumed[T any](c *checking) (value T) {
	if c.fills {
		fill(reflect.ValueOf(&value).Elem(), 0)
	} else if reflect.TypeFor[T]().Kind() == reflect.Pointer {
		_ = json.Unmarshal([]byte("{}"), &value) // nil unless it points to a struct or a map
	}
	return value
}

// fill sets a value and its fields to true, 1 and "1", because a function often ends if a result is
// empty.
func fill(v reflect.Value, depth int) {
	const maxDepth = 5 // types may contain themselves
	if !v.CanSet() || depth > maxDepth {
		return
	}
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.String:
		v.SetString("1")
	case v.CanInt():
		v.SetInt(1)
	case v.CanUint():
		v.SetUint(1)
	case v.CanFloat():
		v.SetFloat(1)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	}
}

// checking observes a run that only checks a journal: no step runs, and nothing is stored.
type checking struct {
	recorded map[entryKey]bool // the operations in the stored journal
	began    []entryKey        // the operations of the run, in order
	places   map[entryKey]string
	changed  []durablecheck.Finding
	fills    bool // assumed values are not empty
	assumed  int  // how many waits were ended by assumption
	waited   int  // how many operations had begun before the first wait that is new; 0 if there is none
}

func (c *checking) begin(key entryKey) {
	c.began = append(c.began, key)
	c.places[key] = caller()
}

// differs records that an operation in the journal has another input or value than in the function.
func (c *checking) differs(kind, name, format string, args ...any) {
	c.changed = append(c.changed, durablecheck.Finding{Class: durablecheck.Changed, Kind: kind, Name: name,
		Detail: fmt.Sprintf(format, args...), Place: c.places[entryKey{kind, name}]})
}

// decoded reports a value that has a field which its type lacks.
func (c *checking) decoded(what string, text json.RawMessage, as any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(as); err != nil {
		place := caller()
		if strings.HasPrefix(place, "runtime/") || strings.HasPrefix(place, "sync/") { // the input of the function
			place = ""
		}
		c.changed = append(c.changed, durablecheck.Finding{Class: durablecheck.Changed, Place: place,
			Detail: what + " has a field that its type lacks: " + strings.TrimPrefix(err.Error(), "json: ")})
	}
}

// operationOf returns the operation to which an entry belongs. ok is false for the other entries,
// such as the end of a child, because the function need not ask for them.
func operationOf(e *entry) (key entryKey, ok bool) {
	switch e.Kind {
	case kindTry:
		return entryKey{kindStep, e.Name}, true
	case kindStep, kindValue, kindTimer, kindChild, kindFirst, kindCall:
		return entryKey{e.Kind, e.Name}, true
	default:
		return entryKey{}, false
	}
}

// checker compares a journal with the function.
type checker struct {
	ctx     context.Context
	program *program
	request *progressorv1.ProcessRequest
	report  durablecheck.Report
}

// check answers a request of `progressor deploy check`.
func check(ctx context.Context, p *program, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	c := &checker{ctx: ctx, program: p, request: req, report: durablecheck.Report{Function: p.name}}
	if err := c.compare(); err != nil {
		return nil, err
	}
	return c.report.Limited().Response()
}

func (c *checker) found(class durablecheck.Class, kind, name, detail, place string) {
	c.report.Findings = append(c.report.Findings,
		durablecheck.Finding{Class: class, Kind: kind, Name: name, Detail: detail, Place: place})
}

// compare fills the report. Its error is that of the context.
func (c *checker) compare() error {
	r, err := c.newRun(c.ctx)
	if err != nil {
		c.found(durablecheck.Error, "", "", err.Error(), "")
		return nil
	}
	defer r.close()
	if len(r.journal.entries) == 0 {
		return nil // the function has not started
	}
	if name := r.journal.start().Name; name != c.program.name {
		r.check.differs("function", name, "the build has the function %s", c.program.name)
	}
	stored := r.journal.snapshot()
	failed := c.replay(r)
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	c.report.Findings = append(c.report.Findings, r.check.changed...)
	if ended := r.journal.ended(); ended != nil {
		c.checkUndos(r, failed)
		return nil
	}
	isSure := r.check.assumed == 0
	c.findRequests(r, stored)
	c.findNew(r, r.journal.entries[len(stored):])
	if failed != nil && isSure {
		c.found(durablecheck.Error, "", "", messageOf(failed), "")
		return nil
	}
	if r.returned != nil && isSure && c.isIdle() && c.foundEnd(r.returned.err) {
		return nil // the function does not ask for the rest, because it fails
	}
	return c.findOrphans(r, stored)
}

func messageOf(err error) string {
	failure := processor.FailureOf(err)
	return failure.GetReason() + ": " + failure.GetMessage()
}

// newRun returns a run of the function that observes and stores nothing.
func (c *checker) newRun(ctx context.Context) (*run, error) {
	j, err := readJournal(c.request.GetProcess())
	if err != nil {
		return nil, err
	}
	r := newRun(ctx, c.program, c.request, j)
	r.quiet = true // the report contains the panics
	r.check = &checking{recorded: map[entryKey]bool{}, places: map[entryKey]string{}}
	for i := range j.entries {
		if key, ok := operationOf(&j.entries[i]); ok {
			r.check.recorded[key] = true
		}
	}
	return r, nil
}

// isIdle reports whether the process waits for something other than a task that runs soon. Then the
// older build has run the function as far as it could.
func (c *checker) isIdle() bool {
	return !slices.ContainsFunc(c.request.GetProcess().GetTimers(),
		func(t *progressorv1.Timer) bool { return t.GetName() == "" })
}

// replay runs the function to the place where the process waits. It passes new operations: a new
// step returns the zero value, a new timer has fired, and a new child has ended.
func (c *checker) replay(r *run) error {
	isEnded := r.journal.ended() != nil
	return r.pretend(func(b *branch) (entryKey, bool) {
		if isEnded {
			return entryKey{}, false
		}
		ends := b.wait.endings()
		if len(ends) == 0 || slices.ContainsFunc(ends, func(key entryKey) bool { return !r.check.isNewWait(key) }) {
			return entryKey{}, false
		}
		if ends[0].kind != kindStep && r.check.waited == 0 {
			r.check.waited = len(r.check.began)
		}
		return ends[0], true
	})
}

// isNewWait reports whether a branch that waits for this entry waits for a new operation, which the
// journal does not contain.
func (c *checking) isNewWait(ends entryKey) bool {
	switch ends.kind {
	case kindStep:
		return !c.recorded[ends]
	case kindFired:
		return !c.recorded[entryKey{kindTimer, ends.name}]
	case kindEnded:
		return !c.recorded[entryKey{kindChild, ends.name}]
	default: // a process that waits for a call has no entry for this
		return false
	}
}

// endings returns the keys of the entries each of which would end the wait.
func (w *wait) endings() []entryKey {
	if w.step != nil {
		return []entryKey{{kindStep, w.step.name}}
	}
	return w.until
}

// pretend runs the function. Whenever it waits, choose may return the entry with which a branch
// continues, with an assumed value.
func (r *run) pretend(choose func(b *branch) (ends entryKey, ok bool)) error {
	for r.check.assumed < maxAssumed {
		if err := r.advance(); err != nil {
			return err
		}
		progress := r.pretendStored()
		for _, b := range slices.Clone(r.branches) {
			if b.wait == nil || b.wait.ready() {
				continue
			}
			if ends, ok := choose(b); ok {
				r.journal.add(entry{Kind: ends.kind, Name: ends.name, Value: assumedValue})
				r.check.assumed++
				progress = true
			}
		}
		if !progress {
			return nil
		}
	}
	return nil
}

// pretendStored marks the new entries as stored if a branch waits for this. It reports whether such
// a branch can now continue.
func (r *run) pretendStored() (waited bool) {
	for _, b := range r.branches {
		if b.wait != nil && b.wait.flush {
			waited = true
		}
	}
	if waited {
		r.journal.saved, r.journal.bytes = len(r.journal.entries), 0
		r.effects.commands, r.effects.replies = nil, nil
	}
	return waited && slices.ContainsFunc(r.branches, func(b *branch) bool {
		return b.wait != nil && b.wait.flush && b.wait.ready()
	})
}

// checkUndos reports the steps of an ended function that cannot be undone.
func (c *checker) checkUndos(r *run, failed error) {
	if failed != nil {
		c.found(durablecheck.Error, "", "", messageOf(failed), "")
		return
	}
	for _, name := range r.pendingUndos() {
		if _, ok := r.undoOf(name); !ok {
			c.found(durablecheck.Error, kindStep, name, "must be undone, but the function no longer contains it, "+
				"or it has no Undo", r.check.places[entryKey{kindStep, name}])
		}
	}
}
