package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/search"
)

const (
	kind   = "bulk"
	prefix = process.BulkPrefix
)

// Bulks starts and runs bulks on one node.
type Bulks struct {
	engine *engine.Engine
	limits limits
}

// New makes the bulks of an engine. Their kind has to be added to it.
func New(e *engine.Engine) *Bulks { return &Bulks{engine: e, limits: usual} }

// Kind is what the engine has to know of bulks.
func (b *Bulks) Kind() engine.Kind {
	return engine.Kind{Name: kind, Processor: processor.Func(b.process)}
}

// Start begins a bulk, and answers when it is stored. The same request with the same key is answered with the first one's bulk. Of a dry
// run nothing is stored: it counts what matches now.
func (b *Bulks) Start(ctx context.Context, r *progressorv1.StartBulkRequest, by process.Actor) (*progressorv1.Bulk, error) {
	o := command{
		Verb: r.GetVerb(), Filter: r.GetFilter(), Rate: r.GetRate(), Reason: r.GetReason(), Actor: by.Name, Source: by.Source,
	}
	filter, err := o.check()
	if err != nil {
		return nil, err
	}
	limit := b.limits.expectTime
	if r.GetDryRun() {
		limit = b.limits.dryRunTime
	}
	counted, err := b.count(ctx, r.GetNamespace(), filter.And(plain), o.Verb, limit)
	if err != nil {
		return nil, err
	}
	if r.GetDryRun() {
		return counted.dryRun(r.GetNamespace(), &o), nil
	}
	o.Expected, o.ExpectedMore = counted.matched, counted.more
	key := keyOf(r.GetNamespace(), newID(r))
	err = b.store(ctx, key, &o, r.GetIdempotencyKey(), by)
	if errors.Is(err, process.ErrProcessExists) && r.GetIdempotencyKey() != "" {
		err = b.sameAs(ctx, key, &o) // its key is forgotten after a day, and it is still there
	}
	if err != nil {
		return nil, err
	}
	return b.read(ctx, key)
}

// newID is the id of a new bulk. Twins of a keyed request have the same.
func newID(r *progressorv1.StartBulkRequest) string {
	if r.GetIdempotencyKey() != "" {
		return process.DerivedProcessID(process.RequestID(r.GetNamespace(), prefix, r.GetIdempotencyKey()))
	}
	return uuid.Must(uuid.NewV7()).String()
}

// store makes the process. Its request is known again by the args, which do not say who asks, nor what was counted.
func (b *Bulks) store(ctx context.Context, key process.Key, o *command, idempotencyKey string, by process.Actor) error {
	metadata, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	_, err = b.engine.Start(ctx, engine.StartParams{
		Key: key, Kind: kind, Args: o.args(), Metadata: metadata, IdempotencyKey: idempotencyKey, Accepted: true,
		Priority: math.MinInt32, // somebody waits for it who wants to mend what waits for a place
		Note: &storage.Note{Method: "StartBulk", By: by, Details: map[string]string{
			"verb": o.verbName(), "filter": o.Filter, "reason": o.Reason,
		}},
	})
	return err
}

// sameAs tells whether the bulk that is there was ordered by the same request.
func (b *Bulks) sameAs(ctx context.Context, key process.Key, o *command) error {
	p, err := b.engine.GetProcess(ctx, key, &progressorv1.HistoryRange{Limit: new(int32)}, 0)
	if err != nil {
		return err
	}
	there, err := commandOf(p)
	if err == nil && string(there.args()) != string(o.args()) {
		err = fmt.Errorf("%s: %w", key, process.ErrIdempotencyMismatch)
	}
	return err
}

// Get reads a bulk with its newest failures.
func (b *Bulks) Get(ctx context.Context, namespace, id string) (*progressorv1.Bulk, error) {
	return b.read(ctx, keyOf(namespace, id))
}

// Cancel asks a bulk to end. What it has done stays done; the page that it is at is done to its end.
func (b *Bulks) Cancel(ctx context.Context, namespace, id string, by process.Actor) (*progressorv1.Bulk, error) {
	key := keyOf(namespace, id)
	if _, err := b.engine.CancelProcess(ctx, engine.CancelParams{Key: key, Actor: by}); err != nil {
		return nil, err
	}
	return b.read(ctx, key)
}

// ProcessID is the id of a bulk's process.
func ProcessID(bulkID string) string { return prefix + bulkID }

func keyOf(namespace, id string) process.Key {
	return process.Key{Namespace: namespace, ProcessID: ProcessID(id)}
}

// shownFailures is how many failures a bulk is shown with.
const shownFailures = 100

func (b *Bulks) read(ctx context.Context, key process.Key) (*progressorv1.Bulk, error) {
	limit := int32(shownFailures)
	p, err := b.engine.GetProcess(ctx, key, &progressorv1.HistoryRange{Limit: &limit, Direction: progressorv1.HistoryRange_DIRECTION_BACKWARD}, 0)
	if err != nil {
		return nil, err
	}
	return message(p)
}

// List lists the bulks of a namespace, the newest first; namespace "": of all, by their names. A page may be short or empty, and still
// have a next.
func (b *Bulks) List(ctx context.Context, namespace string, pageSize int32, pageToken string) ([]*progressorv1.Bulk, string, error) {
	names := []string{namespace}
	if namespace == "" {
		all, err := b.engine.ListNamespaces(ctx)
		if err != nil {
			return nil, "", err
		}
		names = names[:0]
		for _, ns := range all {
			names = append(names, ns.GetNamespace())
		}
	}
	at, inner, ok := strings.Cut(pageToken, ":") // no namespace has a colon in its name
	if pageToken != "" && (!ok || namespace != "" && at != namespace) {
		return nil, "", &process.InvalidError{Field: "page_token", Message: "it is no token that a list of these bulks gave"}
	}
	size := search.DefaultPageSize
	if pageSize > 0 {
		size = min(int(pageSize), search.MaxPageSize)
	}
	var list []*progressorv1.Bulk
	for _, name := range names {
		if name < at {
			continue
		}
		if name > at {
			inner = ""
		}
		if len(list) >= size {
			return list, name + ":", nil
		}
		page, next, err := b.listOf(ctx, name, size-len(list), inner)
		if err != nil {
			return nil, "", err
		}
		if list = append(list, page...); next != "" {
			return list, name + ":" + next, nil
		}
	}
	return list, "", nil
}

func (b *Bulks) listOf(ctx context.Context, namespace string, size int, token string) ([]*progressorv1.Bulk, string, error) {
	page, next, err := b.engine.ListProcesses(ctx, &progressorv1.ListProcessesRequest{
		Namespace: namespace, Filter: `process_id = "` + prefix + `*"`, PageSize: int32(size), PageToken: token,
	})
	if err != nil {
		return nil, "", err
	}
	list := make([]*progressorv1.Bulk, len(page))
	for n, p := range page {
		if list[n], err = message(p); err != nil {
			return nil, "", err
		}
	}
	return list, next, nil
}
