package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// namespace is a snapshot of the configuration of a namespace. A change creates a new one, which
// keeps the slots.
type namespace struct {
	policies
	name        string
	paused      bool
	processor   processor.Processor // nil if this node has none (see unservable)
	unservable  error               // why there is no processor
	backlog     *backlog
	usage       *usage
	slots       *slots
	shares      *requestShares // shares of the requests on this node
	urgentSlots *urgentSlots
	unreachable *atomic.Bool                   // the last call did not reach the processor; nil if it is built in
	config      []byte                         // as stored
	connect     *progressorv1.ConnectProcessor // nil unless the processor is called over the network
	deletion    deletion
	metrics     *namespaceMetrics
}

// policies are the settings of a namespace for its tasks and processes.
type policies struct {
	lease          time.Duration // lease duration if workers take the tasks; otherwise 0
	stepTimeout    time.Duration
	retry          process.RetryPolicy
	zombie         process.ZombiePolicy
	history        process.HistoryMode
	maxWaiting     int32
	maxBacklog     int
	events         storage.EventMode // determines which events of its jobs and runs are stored
	retention      storage.Retention // how long ended processes are kept
	fairnessKey    string            // expression for the fairness key of jobs; "" if there is none
	recordsChanges bool              // see changesEvery
	commandsTo     process.Patterns  // namespaces that commands of its processor may reach; nil means all
}

// defaultPolicies are the policies of a namespace without a configuration.
func defaultPolicies() policies {
	return policies{
		stepTimeout: process.DefaultStepTimeout, retry: process.DefaultRetryPolicy(), zombie: process.ZombieRetry,
		history: process.HistoryFull, maxWaiting: process.DefaultMaxWaiting, events: storage.EventsAll,
	}
}

// servable reports whether this node runs tasks of the namespace now.
func (ns *namespace) servable() bool { return !ns.paused && ns.processor != nil }

// pulled reports whether workers take the tasks now. This node then runs only tasks of kinds with a
// Processor. pulled returns false while the namespace is paused (see Engine.IsPulled).
func (ns *namespace) pulled() bool { return !ns.paused && ns.lease > 0 }

// registry holds the namespaces that this node knows.
type registry struct {
	mu       sync.Mutex
	creating sync.Mutex // held while this node creates a namespace
	byName   atomic.Pointer[map[string]*namespace]
	pauses   atomic.Pointer[namePauses]
	puts     int // number of rows that this node has written or read one by one
}

func (r *registry) all() map[string]*namespace {
	if m := r.byName.Load(); m != nil {
		return *m
	}
	return nil
}

// namespace returns the configuration of a namespace for a request. If this node does not know the
// namespace yet, namespace reads it from the database. The error is process.ErrNamespaceDeleting if
// the namespace is being deleted.
func (e *Engine) namespace(ctx context.Context, name string) (*namespace, error) {
	ns, ok := e.registry.all()[name]
	if !ok {
		row, err := e.store.GetNamespace(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("namespace %q: %w", name, err)
		}
		ns = e.takeOver(row)
	}
	if ns.deletion.requested() {
		return nil, fmt.Errorf("namespace %q: %w", name, process.ErrNamespaceDeleting)
	}
	return ns, nil
}

// reloadNamespaces reads all namespaces. overdue is true if the grace period of a cancel is over.
// If this node wrote a row during the read, the result may be older than that row. reloadNamespaces
// then ignores the result, and the next pass reads the namespaces again.
func (e *Engine) reloadNamespaces(ctx context.Context) (overdue bool, err error) {
	e.registry.mu.Lock()
	before := e.registry.puts
	e.registry.mu.Unlock()
	all, err := e.store.ReadNamespaceStates(ctx)
	if err != nil {
		return false, err
	}
	rows := make([]storage.Namespace, len(all))
	paused := namePauses{}
	for n, s := range all {
		if len(s.PausedNames) > 0 {
			paused[s.Namespace] = s.PausedNames
		}
		rows[n] = storage.Namespace{
			Namespace: s.Namespace, Config: s.Config, Paused: s.Paused,
			DeletionRequestedTime: s.DeletionRequestedTime, DeletesData: s.DeletesData,
		}
		if s.Grouped {
			e.workers.ExpectGroups(s.Namespace)
		}
		overdue = s.Overdue
	}
	e.registry.mu.Lock()
	if e.registry.puts == before {
		e.dropNamespaces(rows)
		e.applyNamespaces(rows)
		e.applyPauses(paused)
	}
	e.registry.mu.Unlock()
	if err := e.acknowledgeDeletions(ctx); err != nil {
		return overdue, err
	}
	for _, k := range e.kinds {
		if k.ObserveNamespaces != nil {
			k.ObserveNamespaces(all)
		}
	}
	return overdue, nil
}

// takeOver applies one row that this node has just written or read.
func (e *Engine) takeOver(row storage.Namespace) *namespace {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	e.registry.puts++
	e.applyNamespaces([]storage.Namespace{row})
	return e.registry.all()[row.Namespace]
}

// applyNamespaces applies rows that have changed. The caller holds the lock of the registry.
func (e *Engine) applyNamespaces(rows []storage.Namespace) {
	old := e.registry.all()
	changed := map[string]struct{}{}
	next := make(map[string]*namespace, len(old)+len(rows))
	maps.Copy(next, old)
	for _, row := range rows {
		if ns, ok := old[row.Namespace]; ok && ns.paused == row.Paused && ns.deletion.matches(row) &&
			bytes.Equal(ns.config, row.Config) {
			continue
		}
		next[row.Namespace] = e.configure(row, old[row.Namespace])
		if replaced, ok := old[row.Namespace]; ok {
			closeIdle(replaced.processor)
		}
		changed[row.Namespace] = struct{}{}
	}
	if len(changed) > 0 {
		e.registry.byName.Store(&next)
		e.wakeAll()
		e.workers.NamespacesChanged(changed)
	}
}

// closeIdle closes the idle connections of a processor that no new attempt will use.
func closeIdle(p processor.Processor) {
	if c, ok := p.(io.Closer); ok {
		_ = c.Close() // Close only closes idle connections
	}
}

// configure returns the configuration of a row. If this node cannot run the tasks of the namespace,
// for example because it does not have the processor, the node stores requests, and the tasks wait
// for another node.
func (e *Engine) configure(row storage.Namespace, old *namespace) *namespace {
	ns := &namespace{
		policies: defaultPolicies(), name: row.Namespace, paused: row.Paused, config: row.Config,
		deletion: deletionOf(row),
		metrics:  e.metrics.namespace(e.labels.add(row.Namespace)), unreachable: new(atomic.Bool),
	}
	maxRunning := process.DefaultMaxRunning
	var m progressorv1.Namespace
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(row.Config, &m); err != nil {
		ns.unservable = fmt.Errorf("namespace %s: cannot read its configuration: %w", row.Namespace, err)
		e.log.Error("cannot read namespace configuration", "namespace", row.Namespace, "error", err)
	} else {
		ns.apply(&m)
		if m.GetMaxRunning() > 0 {
			maxRunning = int(m.GetMaxRunning())
		}
		ns.processor, ns.unservable = e.connect(row.Namespace, m.GetProcessor(), maxRunning)
		if ns.unservable != nil {
			e.log.Error("namespace cannot be served by this node", "namespace", row.Namespace, "error", ns.unservable)
		}
	}
	ns.maxBacklog = int(min(cmp.Or(int64(m.GetMaxBacklog()), process.DefaultMaxBacklog*int64(maxRunning)),
		math.MaxInt32))
	if old != nil {
		ns.backlog, ns.usage = old.backlog, old.usage
		ns.slots, ns.urgentSlots, ns.shares = old.slots, old.urgentSlots, old.shares
		ns.slots.resize(maxRunning)
	} else {
		ns.backlog, ns.usage = &backlog{}, &usage{}
		ns.slots = &slots{
			max: maxRunning, node: e.nodeSlots, wakeStored: e.calls.wake,
			wakeTimers: func() { e.timers.alarm(row.Namespace, 0) },
		}
		ns.shares = newRequestShares(fmt.Sprintf("namespace %q", row.Namespace))
		ns.urgentSlots = &urgentSlots{wake: func() { e.timers.alarm(row.Namespace, 0) }}
	}
	return ns
}

func (ns *namespace) apply(m *progressorv1.Namespace) {
	if d := m.GetStepTimeout().AsDuration(); d > 0 {
		ns.stepTimeout = d
	}
	ns.retention, ns.fairnessKey = retentionOf(m), m.GetFairnessKey()
	ns.commandsTo = append(process.Patterns{ns.name}, m.GetCommandNamespaces()...)
	ns.events, ns.recordsChanges = wire.EventMode(m), len(m.GetChanges().GetKinds()) > 0
	ns.connect = m.GetProcessor().GetConnect()
	if pull := m.GetProcessor().GetPull(); pull != nil {
		ns.lease = cmp.Or(pull.GetLeaseDuration().AsDuration(), defaultLease)
	}
	if m.GetMaxWaiting() > 0 {
		ns.maxWaiting = m.GetMaxWaiting()
	}
	if m.GetZombiePolicy() == progressorv1.ZombiePolicy_ZOMBIE_POLICY_ERROR {
		ns.zombie = process.ZombieError
	}
	switch m.GetHistoryMode() {
	case progressorv1.HistoryMode_HISTORY_MODE_NONE:
		ns.history = process.HistoryNone
	case progressorv1.HistoryMode_HISTORY_MODE_LAST:
		ns.history = process.HistoryLast
	}
	p := m.GetRetryPolicy()
	if p == nil {
		return
	}
	if d := p.GetInitialInterval().AsDuration(); d > 0 {
		ns.retry.Initial = d
	}
	if p.BackoffCoefficient != nil {
		ns.retry.Coefficient = p.GetBackoffCoefficient()
	}
	if d := p.GetMaxInterval().AsDuration(); d > 0 {
		ns.retry.Max = d
	}
	if p.GetMaxAttempts() > 0 {
		ns.retry.MaxAttempts = p.GetMaxAttempts()
	}
	if p.Jitter != nil {
		ns.retry.JitterPortion = p.GetJitter()
	}
	ns.retry.NonRetryable = p.GetNonRetryableErrors()
}

// connect returns the processor of a namespace.
func (e *Engine) connect(name string, cfg *progressorv1.ProcessorConfig, maxRunning int) (processor.Processor, error) {
	p, err := e.cfg.processorOf(name, cfg, maxRunning)
	if _, builtin := cfg.GetTransport().(*progressorv1.ProcessorConfig_Builtin); builtin && err == nil {
		p = processor.Guard(p, e.log)
	}
	return p, err
}

// CheckProcessor validates the processor of a namespace against this configuration. It does not
// connect to the processor.
func (c *Config) CheckProcessor(m *progressorv1.Namespace) error {
	if err := checkHeaders(m.GetProcessor().GetConnect()); err != nil {
		return err
	}
	p, err := c.processorOf(m.GetNamespace(), m.GetProcessor(), process.DefaultMaxRunning)
	if err == nil {
		closeIdle(p)
	}
	return err
}

// PutNamespace creates a namespace or replaces its configuration. Other nodes apply it within a
// second. by is the operator for the audit, if there is one.
func (e *Engine) PutNamespace(
	ctx context.Context, m *progressorv1.Namespace, by ...process.Actor,
) (*progressorv1.Namespace, error) {
	return e.replaceNamespace(ctx, m, func(json.RawMessage) error { return nil }, by...)
}

// replaceNamespace is PutNamespace with a check of the stored configuration, which is nil if the
// namespace does not exist. If check returns an error, nothing is stored.
func (e *Engine) replaceNamespace(
	ctx context.Context, m *progressorv1.Namespace, check func(before json.RawMessage) error, by ...process.Actor,
) (*progressorv1.Namespace, error) {
	if err := cmp.Or(checkHeaders(m.GetProcessor().GetConnect()), e.checkByKinds(m), wire.CheckChanges(m)); err != nil {
		return nil, err
	}
	connected, err := e.connect(m.GetNamespace(), m.GetProcessor(), process.DefaultMaxRunning)
	if err != nil {
		return nil, err
	}
	closeIdle(connected)
	config, err := e.namespaceConfig(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("put namespace %s: %w", m.GetNamespace(), err)
	}
	if _, known := e.registry.all()[m.GetNamespace()]; !known {
		e.registry.creating.Lock()
		defer e.registry.creating.Unlock()
		if err := e.checkRoom(ctx, m.GetNamespace()); err != nil {
			return nil, err
		}
	}
	row, err := e.putNamespace(ctx, m, func(before json.RawMessage) (json.RawMessage, error) {
		if err := check(before); err != nil {
			return nil, err
		}
		return config(before)
	}, by)
	if invalid, ok := errors.AsType[*process.InvalidError](err); ok {
		return nil, invalid
	}
	if err != nil {
		return nil, fmt.Errorf("namespace %q: %w", m.GetNamespace(), err)
	}
	e.takeOver(row)
	return e.namespaceMessage(ctx, row)
}

// checkRoom returns an error if the maximum number of namespaces is reached and this one does not
// exist. If other nodes create namespaces at the same time, the limit may be exceeded by one for
// each of them.
func (e *Engine) checkRoom(ctx context.Context, name string) error {
	n, err := e.store.CountNamespaces(ctx)
	if err != nil || n < e.cfg.MaxNamespaces {
		return err
	}
	if _, err := e.store.GetNamespace(ctx, name); !errors.Is(err, process.ErrNamespaceNotFound) {
		return err
	}
	return e.refused("namespaces", "there are %d namespaces, and max_namespaces of this node is %d",
		n, e.cfg.MaxNamespaces)
}

// retentionOf returns the retention of each outcome in a namespace.
func retentionOf(m *progressorv1.Namespace) storage.Retention {
	all := m.GetRetention().AsDuration()
	return storage.Retention{
		Completed: all, Failed: cmp.Or(m.GetFailedRetention().AsDuration(), all),
		Cancelled: cmp.Or(m.GetCancelledRetention().AsDuration(), all),
	}
}

// GetNamespace reads a namespace.
func (e *Engine) GetNamespace(ctx context.Context, name string) (*progressorv1.Namespace, error) {
	row, err := e.store.GetNamespace(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("namespace %q: %w", name, err)
	}
	return e.namespaceMessage(ctx, row)
}

// CheckNamespace returns an error if a namespace does not exist or is being deleted. It reads the
// database.
func (e *Engine) CheckNamespace(ctx context.Context, name string) error {
	row, err := e.store.GetNamespace(ctx, name)
	if err == nil && row.DeletionRequestedTime != nil {
		err = process.ErrNamespaceDeleting
	}
	if err != nil {
		return fmt.Errorf("namespace %q: %w", name, err)
	}
	return nil
}

// maxNamespaces is the default and the maximum size of a page of ListNamespaces.
const maxNamespaces = 1000

// ListNamespaces lists the namespaces by name.
func (e *Engine) ListNamespaces(
	ctx context.Context, r *progressorv1.ListNamespacesRequest,
) (list []*progressorv1.Namespace, next string, err error) {
	after, err := wire.NameAfter(r.GetPageToken())
	if err != nil {
		return nil, "", err
	}
	size := maxNamespaces
	if r.GetPageSize() > 0 {
		size = min(int(r.GetPageSize()), maxNamespaces)
	}
	rows, more, err := e.store.ListNamespaces(ctx, Visible(ctx), after, size+1)
	if err != nil {
		return nil, "", err
	}
	if len(rows) > size {
		rows, more = rows[:size], true
	}
	for _, row := range rows {
		m, err := e.namespaceMessage(ctx, row)
		if err != nil {
			return nil, "", err
		}
		list = append(list, m)
	}
	if more {
		next = wire.TokenAfter(rows[len(rows)-1].Namespace)
	}
	return list, next, nil
}

// FairnessKey returns the expression for the fairness key of jobs in a namespace, or "" if there is
// none or the namespace cannot be read.
func (e *Engine) FairnessKey(name string) string {
	ns, known := e.registry.all()[name]
	if !known {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		var err error
		if ns, err = e.namespace(ctx, name); err != nil {
			return ""
		}
	}
	return ns.fairnessKey
}

// NamespaceNames returns the sorted names of the namespaces that this node knows, without those
// that are being deleted.
func (e *Engine) NamespaceNames() []string {
	var names []string
	for name, ns := range e.registry.all() {
		if !ns.deletion.requested() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// eventMode returns which job events a namespace keeps, or all if the namespace is not yet known.
func (e *Engine) eventMode(name string) storage.EventMode {
	if ns, ok := e.registry.all()[name]; ok {
		return ns.events
	}
	return storage.EventsAll
}

// IsPaused reports whether a namespace is paused, as known to this node. The state may be one
// second old. IsPaused makes no query, so it cannot fail.
func (e *Engine) IsPaused(name string) bool {
	ns, ok := e.registry.all()[name]
	return ok && ns.paused
}

// SetNamespacePaused pauses or resumes the tasks of a namespace.
func (e *Engine) SetNamespacePaused(
	ctx context.Context, name string, paused bool, by ...process.Actor,
) (*progressorv1.Namespace, error) {
	row, err := e.store.SetNamespacePaused(ctx, name, paused, by...)
	if err != nil {
		return nil, fmt.Errorf("namespace %q: %w", name, err)
	}
	e.takeOver(row)
	return e.namespaceMessage(ctx, row)
}

func (e *Engine) namespaceMessage(ctx context.Context, row storage.Namespace) (*progressorv1.Namespace, error) {
	m := &progressorv1.Namespace{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(row.Config, m); err != nil {
		return nil, fmt.Errorf("namespace %s: cannot read its configuration: %w", row.Namespace, err)
	}
	maskHeaders(m)
	m.Namespace, m.Paused, m.CreatedTime = row.Namespace, row.Paused, timestamppb.New(row.CreatedTime)
	var err error
	m.Deletion, err = e.deletionMessage(ctx, row)
	return m, err
}
