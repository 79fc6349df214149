package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/actor"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/search"
)

const (
	kind   = "bulk"
	prefix = process.BulkPrefix
)

// Bulks starts and executes bulks on one node.
type Bulks struct {
	engine       *engine.Engine
	limits       limits
	processVerbs map[progressorv1.BulkVerb]Verb
	targets      map[string]Target // by kind
}

// New returns the bulks of an engine, which act on processes and on targets. The caller must add
// their Kind to the engine.
func New(e *engine.Engine, targets ...Target) *Bulks {
	b := &Bulks{engine: e, limits: defaultLimits, processVerbs: processVerbs(e), targets: map[string]Target{}}
	for _, t := range targets {
		b.targets[t.Kind] = t
	}
	return b
}

// Kind returns the kind of bulks for the engine.
func (b *Bulks) Kind() engine.Kind {
	return engine.Kind{Name: kind, Processor: &actor.Actor[*work]{
		Noun: "a bulk", New: b.newWork, Read: (*work).read, Init: (*work).start, Timer: (*work).page,
	}}
}

// Start starts a bulk and returns when it is stored. A repeated request with the same key returns
// the same bulk. A dry run stores nothing: it counts the matching processes.
func (b *Bulks) Start(
	ctx context.Context, r *progressorv1.StartBulkRequest, by process.Actor,
) (*progressorv1.Bulk, error) {
	o := command{
		Kind: r.GetKind(), Verb: r.GetVerb(), Filter: r.GetFilter(), Rate: r.GetRate(), Reason: r.GetReason(),
		Args: r.GetArgs(), Actor: by.Name, Source: by.Source, RequestID: by.RequestID,
	}
	if err := b.check(&o); err != nil {
		return nil, err
	}
	limit := b.limits.expectTime
	if r.GetDryRun() {
		limit = b.limits.dryRunTime
	}
	counted, err := b.count(ctx, r.GetNamespace(), &o, limit)
	if err != nil {
		return nil, err
	}
	if r.GetDryRun() {
		return counted.dryRun(r.GetNamespace(), &o), nil
	}
	o.Expected, o.ExpectedMore = counted.matched, counted.more
	id, err := newID(r)
	if err != nil {
		return nil, err
	}
	key := keyOf(r.GetNamespace(), id)
	err = b.store(ctx, key, &o, r.GetIdempotencyKey(), by)
	if errors.Is(err, process.ErrProcessExists) && r.GetIdempotencyKey() != "" {
		err = b.checkSame(ctx, key, &o) // its key is deleted after a day, while the bulk may still exist
	}
	if err != nil {
		return nil, err
	}
	return b.read(ctx, key)
}

// newID returns the ID of a new bulk. Repeated requests with the same key get the same ID.
func newID(r *progressorv1.StartBulkRequest) (string, error) {
	if r.GetIdempotencyKey() != "" {
		return process.DerivedUUID(process.RequestID(r.GetNamespace(), prefix, r.GetIdempotencyKey())), nil
	}
	return engine.NewID()
}

// store creates the process of a bulk. Its fingerprint covers the args, which contain neither the
// actor nor the counts.
func (b *Bulks) store(ctx context.Context, key process.Key, o *command, idempotencyKey string, by process.Actor) error {
	metadata, err := o.metadata()
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	_, err = b.engine.Start(ctx, engine.StartParams{
		Key: key, Kind: kind, Args: o.args(), Metadata: metadata, IdempotencyKey: idempotencyKey, Accepted: true,
		Priority: actor.Priority, // high, so that the bulk runs before tasks that it may repair
		AuditRecord: &storage.AuditRecord{Method: "StartBulk", By: by, Details: map[string]string{
			"kind": o.Kind, "verb": o.verbName(), "filter": o.Filter, "reason": o.Reason,
		}},
	})
	return err
}

// checkSame returns an error if the existing bulk was started by a different request.
func (b *Bulks) checkSame(ctx context.Context, key process.Key, o *command) error {
	p, err := b.engine.GetProcess(ctx, key, &progressorv1.HistoryRange{Limit: new(int32)}, 0)
	if err != nil {
		return err
	}
	existing, err := commandOf(p, json.Unmarshal)
	if err == nil {
		err = b.readArgs(ctx, key, &existing)
	}
	if err == nil && string(existing.args()) != string(o.args()) {
		err = fmt.Errorf("%s: %w", key, process.ErrIdempotencyMismatch)
	}
	return err
}

// Get returns a bulk with its newest failures.
func (b *Bulks) Get(ctx context.Context, namespace, id string) (*progressorv1.Bulk, error) {
	return b.read(ctx, keyOf(namespace, id))
}

// Cancel cancels a bulk. Its current page is completed, and its changes are not undone.
func (b *Bulks) Cancel(ctx context.Context, namespace, id string, by process.Actor) (*progressorv1.Bulk, error) {
	key := keyOf(namespace, id)
	if _, err := b.engine.CancelProcess(ctx, engine.CancelParams{Key: key, Actor: by}); err != nil {
		return nil, err
	}
	return b.read(ctx, key)
}

// ProcessID returns the ID of a bulk's process.
func ProcessID(bulkID string) string { return prefix + bulkID }

func keyOf(namespace, id string) process.Key {
	return process.Key{Namespace: namespace, ProcessID: ProcessID(id)}
}

// shownFailures is the maximum number of failures that are returned with a bulk.
const shownFailures = 100

func (b *Bulks) read(ctx context.Context, key process.Key) (*progressorv1.Bulk, error) {
	limit := int32(shownFailures)
	p, err := b.engine.GetProcess(ctx, key,
		&progressorv1.HistoryRange{Limit: &limit, Direction: progressorv1.HistoryRange_DIRECTION_BACKWARD}, 0)
	if err != nil {
		return nil, err
	}
	m, err := message(p)
	if err != nil {
		return nil, err
	}
	o, err := commandOf(p, json.Unmarshal)
	if err == nil {
		err = b.readArgs(ctx, key, &o)
	}
	m.Args = o.Args
	return m, err
}

// readArgs reads the args of a command from the INIT task of its process, if the task has them.
func (b *Bulks) readArgs(ctx context.Context, key process.Key, o *command) error {
	if !o.ArgsInInit {
		return nil
	}
	trace, err := b.engine.TraceProcess(ctx, key, 1, "")
	if err != nil {
		return err
	}
	if len(trace.GetTasks()) == 0 {
		return fmt.Errorf("the INIT task of %s: %w", key, process.ErrTaskNotFound)
	}
	if o.Args, err = argsOf(trace.GetTasks()[0].GetArgs()); err != nil {
		return fmt.Errorf("cannot read the args of %s: %w", key, err)
	}
	return nil
}

// List lists the bulks of a namespace, newest first. If the namespace is "", it lists those of all
// namespaces, by name. A page may be short or empty, and still have a next page.
func (b *Bulks) List(
	ctx context.Context, namespace string, pageSize int32, pageToken string,
) ([]*progressorv1.Bulk, string, error) {
	names := []string{namespace}
	if namespace == "" {
		names = b.engine.VisibleNames(ctx)
	}
	at, inner, ok := strings.Cut(pageToken, ":") // the name of a namespace contains no colon
	if pageToken != "" && (!ok || namespace != "" && at != namespace) {
		return nil, "", process.InvalidPageToken()
	}
	size := search.DefaultPageSize
	if pageSize > 0 {
		size = min(int(pageSize), search.MaxPageSize)
	}
	var list []*progressorv1.Bulk
	bytes := 0
	for _, name := range names {
		if name < at {
			continue
		}
		if name > at {
			inner = ""
		}
		if len(list) >= size || bytes > storage.ListBytes {
			return list, name + ":", nil
		}
		page, next, err := b.listOf(ctx, name, size-len(list), inner)
		if err != nil {
			return nil, "", err
		}
		for _, m := range page {
			bytes += proto.Size(m)
		}
		if list = append(list, page...); next != "" {
			return list, name + ":" + next, nil
		}
	}
	return list, "", nil
}

func (b *Bulks) listOf(
	ctx context.Context, namespace string, size int, token string,
) ([]*progressorv1.Bulk, string, error) {
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
