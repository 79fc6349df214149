package bulk

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
)

// Target is a kind of process on which bulks can act. A bulk selects its processes with the filter
// of the list of that kind.
type Target struct {
	Kind    string // see Process.kind
	Plural  string // name in errors
	IDField string // field of the filter for the ID
	Verbs   map[progressorv1.BulkVerb]Verb

	// Find returns a page of the items in a namespace that match filter, oldest first. A page may
	// be short or empty even if it is not the last one. next is the token of the next page, or ""
	// at the end.
	Find func(ctx context.Context, namespace, filter, token string, limit int) (found []Item, next string, err error)
	// Check parses a filter.
	Check func(filter string) error
}

// Item is a job or run that a target has found.
type Item struct {
	search.Cursor        // ProcessID is the ID of the job or run
	State         string // a value of Verb.Allowed
}

// Verb is the operation of a bulk on one process, job or run.
type Verb struct {
	Allowed []string // the states in which the verb is allowed; nil means all
	Keyed   bool     // Do uses an idempotency key, so that a repetition returns the first result
	// Do executes the verb. It returns a *process.WrongStatusError if the state does not allow the
	// verb.
	Do func(ctx context.Context, key process.Key, o Options, by process.Actor) error
}

// Options are the parts of a bulk that a verb may use.
type Options struct {
	Reason string
	Args   []byte // only for REPAIR
}

func (v Verb) allows(state string) bool { return v.Allowed == nil || slices.Contains(v.Allowed, state) }

// place is the position at which a search continues.
type place struct {
	cursor search.Cursor // position in a bulk of processes
	token  string        // page token of a target
}

// verbs returns the verbs of a kind, or nil if there is no such kind.
func (b *Bulks) verbs(kind string) map[progressorv1.BulkVerb]Verb {
	if kind == "" {
		return b.processVerbs
	}
	return b.targets[kind].Verbs
}

// check validates and completes a command.
func (b *Bulks) check(o *command) error {
	if err := o.check(b.verbs(o.Kind)); err != nil {
		return err
	}
	return b.checkFilter(o)
}

// checkFilter validates the filter of a command whose kind exists.
func (b *Bulks) checkFilter(o *command) error {
	if o.Kind != "" {
		target := b.targets[o.Kind]
		if strings.TrimSpace(o.Filter) == "" {
			return emptyFilter(target.IDField, target.Plural)
		}
		return target.Check(o.Filter)
	}
	filter, err := search.Parse(o.Filter)
	if err == nil && filter.String() == "" {
		err = emptyFilter("process_id", "processes")
	}
	return err
}

func emptyFilter(id, what string) error {
	return &process.InvalidError{
		Field: "filter", Message: fmt.Sprintf(`must not be empty: use %s = "*" for all %s of the namespace`, id, what),
	}
}

// find finds the next items that match a command and were created at began or before. If began is
// zero, items created at any time match.
func (b *Bulks) find(
	ctx context.Context, namespace string, o *command, began time.Time, from place, limit int,
) (found []Item, next place, more bool, err error) {
	if o.Kind != "" {
		target := b.targets[o.Kind]
		found, next.token, err = target.Find(ctx, namespace, o.textFilter(target, began), from.token, limit)
		return found, next, next.token != "", err
	}
	filter, err := o.matching(began)
	if err != nil {
		return nil, from, false, err
	}
	steps, cursor, more, err := b.engine.WalkProcesses(ctx, namespace, filter, from.cursor, limit)
	for _, s := range steps {
		found = append(found, Item{Cursor: s.Cursor, State: string(s.Status)})
	}
	return found, place{cursor: cursor}, more, err
}

// matches reports whether an item that was found earlier still matches.
func (b *Bulks) matches(
	ctx context.Context, namespace string, o *command, began time.Time, at search.Cursor,
) (bool, error) {
	if o.Kind != "" {
		target := b.targets[o.Kind]
		filter := fmt.Sprintf(`%s AND %s = %s AND created_time = %q`, o.textFilter(target, began), target.IDField,
			search.Quote(at.ProcessID, false), at.CreatedTime.UTC().Format(time.RFC3339Nano))
		found, _, err := target.Find(ctx, namespace, filter, "", 1)
		return len(found) > 0, err
	}
	filter, err := o.matching(began)
	if err != nil {
		return false, err
	}
	found, _, _, err := b.engine.WalkProcesses(ctx, namespace, filter.Only(at), search.Cursor{}, 1)
	return len(found) > 0, err
}

// textFilter returns the complete filter of a command on a target.
func (o *command) textFilter(target Target, began time.Time) string {
	text := fmt.Sprintf(`(%s) AND NOT %s = "~*"`, o.Filter, target.IDField)
	if !began.IsZero() {
		text += fmt.Sprintf(` AND created_time <= %q`, began.UTC().Format(time.RFC3339Nano))
	}
	return text
}
