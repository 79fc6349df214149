package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/secrets"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/changes"
	"github.com/progressor-engine/progressor/wire"
)

// kind is the name of the kind that runs sinks. The kind has no processes.
const kind = "sink"

// defaultMaxLag is the default of Sink.max_lag.
const defaultMaxLag = 7 * 24 * time.Hour

// Open returns the Deliverer for a sink whose secrets have been resolved. It does not connect. If a
// setting is invalid, the error is a *process.InvalidError.
type Open func(*progressorv1.Sink) (Deliverer, error)

// Config configures the sinks of a node.
type Config struct {
	Open       Open
	Logger     *slog.Logger          // slog.Default() if nil
	Registerer prometheus.Registerer // for the metrics of sinks; nil for none
}

// Sinks manages the sinks of a database. Each node delivers for some of them.
type Sinks struct {
	engine  *engine.Engine
	store   *storage.Store
	open    Open
	log     *slog.Logger
	woken   chan struct{} // makes the runner read the rows of the sinks again
	limits  limits
	metrics *metrics
}

// New returns the sinks of an engine. The caller must add their Kind to the engine.
func New(e *engine.Engine, s *storage.Store, cfg Config) *Sinks {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	all := &Sinks{
		engine: e, store: s, open: cfg.Open, log: cfg.Logger, woken: make(chan struct{}, 1), limits: defaultLimits,
	}
	all.metrics = newMetrics(all, cfg.Registerer)
	return all
}

// Kind returns the kind that delivers on every node that runs tasks.
func (s *Sinks) Kind() engine.Kind {
	return engine.Kind{Name: kind, Run: s.run, Hears: map[string]func(string){noticeChannel: s.onNotice}}
}

// wake makes the runner read the rows of the sinks again. It does not wake deliveries, which wait
// for changes in changes.Pacer.
func (s *Sinks) wake() { signal(s.woken) }

// Put creates a sink or replaces its settings.
func (s *Sinks) Put(
	ctx context.Context, r *progressorv1.PutSinkRequest, by ...process.Actor,
) (*progressorv1.Sink, error) {
	always := func(_, _ *progressorv1.Sink) error { return nil }
	if err := s.put(ctx, r, always, by); err != nil {
		return nil, err
	}
	return s.read(ctx, changes.SinkKey{Namespace: r.GetSink().GetNamespace(), SinkID: r.GetSink().GetSinkId()})
}

// errSame ends the transaction of a Declare that would change nothing.
var errSame = errors.New("the sink has these settings")

// Declare is like Put, but does nothing if the sink already has the same settings and secrets.
func (s *Sinks) Declare(ctx context.Context, m *progressorv1.Sink, by ...process.Actor) error {
	ifChanged := func(wanted, stored *progressorv1.Sink) error {
		if proto.Equal(declared(wanted), declared(stored)) {
			return errSame
		}
		return nil
	}
	err := s.put(ctx, &progressorv1.PutSinkRequest{Sink: m}, ifChanged, by)
	if errors.Is(err, errSame) {
		return nil
	}
	return err
}

// declared returns a sink without the fields that are not stored.
func declared(m *progressorv1.Sink) *progressorv1.Sink {
	m = proto.CloneOf(m)
	m.Status, m.CreatedTime, m.UpdatedTime = nil, nil, nil
	if hook := m.GetWebhook(); hook != nil {
		hook.Signed, hook.Unsigned = false, false
	}
	return m
}

// put stores a sink, unless replace refuses to replace the old settings.
func (s *Sinks) put(
	ctx context.Context, r *progressorv1.PutSinkRequest,
	replace func(wanted, stored *progressorv1.Sink) error, by []process.Actor,
) error {
	m := proto.CloneOf(r.GetSink())
	if err := s.checkNamespace(ctx, m); err != nil {
		return err
	}
	if _, err := newFilter(m); err != nil {
		return err
	}
	begin, err := s.cursorAt(ctx, m.GetNamespace(), r)
	if err != nil {
		return err
	}
	k := changes.SinkKey{Namespace: m.GetNamespace(), SinkID: m.GetSinkId()}
	if err := s.prepareSecrets(ctx, k, m); err != nil {
		return err
	}
	err = changes.PutSink(ctx, s.store, k, begin, func(old *changes.SinkSettings) (changes.SinkSettings, error) {
		if old != nil {
			stored, err := s.openedToReplace(ctx, m, old)
			if err != nil {
				return changes.SinkSettings{}, err
			}
			keepSecrets(m, stored)
			if err := replace(m, stored); err != nil {
				return changes.SinkSettings{}, err
			}
		}
		plain, err := resolved(ctx, m, s.cached())
		if err != nil {
			return changes.SinkSettings{}, err
		}
		target, err := s.open(plain)
		if err != nil {
			return changes.SinkSettings{}, err
		}
		target.Close()
		return s.sealed(ctx, proto.CloneOf(m))
	}, by...)
	if err != nil {
		return fmt.Errorf("sink %s/%s: %w", k.Namespace, k.SinkID, err)
	}
	s.wake()
	return nil
}

// validKey replaces an unknown secret while the other settings of a sink are checked.
const validKey = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// Check returns the error that Put would return for the settings of a sink, without reading the
// database. Missing secrets are not an error, because they may be stored there.
func Check(m *progressorv1.Sink, open Open) error {
	if _, err := newFilter(m); err != nil {
		return err
	}
	m = proto.CloneOf(m)
	if err := checkSecrets(m); err != nil {
		return err
	}
	m, err := resolved(context.Background(), m, resolver{
		text: func(_ context.Context, _, value string) (string, error) {
			if secrets.HasReference(value) {
				value = validKey
			}
			return value, nil
		},
		certificate: func(context.Context, string, string) (string, error) { return "", nil },
	})
	if err != nil {
		return err
	}
	if login := m.GetKafka().GetSasl(); login != nil && login.GetPassword() == "" {
		login.Password = "stored"
	}
	target, err := open(m)
	if err != nil {
		return err
	}
	target.Close()
	return nil
}

// checkNamespace returns an error if the namespace of a sink does not exist, is being deleted, or
// does not record what the sink selects.
func (s *Sinks) checkNamespace(ctx context.Context, m *progressorv1.Sink) error {
	ns, err := s.engine.GetNamespace(ctx, m.GetNamespace())
	switch {
	case err != nil:
		return err
	case ns.GetDeletion() != nil:
		return fmt.Errorf("namespace %q: %w", m.GetNamespace(), process.ErrNamespaceDeleting)
	}
	recorded := map[progressorv1.ChangeKind]bool{}
	var names []string
	for _, kind := range ns.GetChanges().GetKinds() {
		recorded[kind] = true
		names = append(names, kindName(kind))
	}
	if len(recorded) == 0 {
		return &process.InvalidError{Field: "sink.namespace", Message: fmt.Sprintf(
			"%s records no changes: set changes.kinds of the namespace", m.GetNamespace())}
	}
	for n, kind := range m.GetKinds() {
		if !recorded[kind] {
			return &process.InvalidError{Field: fmt.Sprintf("sink.kinds[%d]", n), Message: fmt.Sprintf(
				"the namespace does not record %s: it records %s", kindName(kind), strings.Join(names, ", "))}
		}
	}
	return nil
}

func kindName(kind progressorv1.ChangeKind) string {
	return strings.TrimPrefix(kind.String(), "CHANGE_KIND_")
}

// cursorAt returns the cursor at which a new sink begins.
func (s *Sinks) cursorAt(
	ctx context.Context, namespace string, r *progressorv1.PutSinkRequest,
) (changes.Cursor, error) {
	if r.GetFromTime() != nil {
		return s.cursorOf(ctx, namespace, "from_time", r.GetFromTime().AsTime())
	}
	at, _, err := changes.Now(ctx, s.store, namespace)
	return at, err
}

// cursorOf returns the cursor before the first change at or after a time.
func (s *Sinks) cursorOf(ctx context.Context, namespace, field string, from time.Time) (changes.Cursor, error) {
	if !from.After(time.Unix(0, 0)) {
		return changes.Oldest(ctx, s.store, namespace)
	}
	at, err := changes.At(ctx, s.store, namespace, field, from)
	if lost, ok := errors.AsType[*process.CursorError](err); ok {
		lost.Message += ": use 1970-01-01T00:00:00Z for the oldest one"
	}
	return at, err
}

// Get returns a sink with its newest dead letters.
func (s *Sinks) Get(ctx context.Context, r *progressorv1.GetSinkRequest) (*progressorv1.Sink, error) {
	if err := s.engine.CheckNamespace(ctx, r.GetNamespace()); err != nil {
		return nil, err
	}
	k := changes.SinkKey{Namespace: r.GetNamespace(), SinkID: r.GetSinkId()}
	m, err := s.read(ctx, k)
	if err != nil || m.GetStatus().GetStoredDeadLetters() == 0 {
		return m, err
	}
	letters, err := changes.DeadLetters(ctx, s.store, k)
	if err != nil {
		return nil, err
	}
	for _, d := range letters {
		m.Status.RecentDeadLetters = append(m.Status.RecentDeadLetters, letterOf(&d))
	}
	return m, nil
}

func (s *Sinks) read(ctx context.Context, k changes.SinkKey) (*progressorv1.Sink, error) {
	row, err := changes.GetSink(ctx, s.store, k)
	if err != nil {
		return nil, fmt.Errorf("sink %s/%s: %w", k.Namespace, k.SinkID, err)
	}
	return messageOf(row)
}

// defaultPage is the default size of a page of List.
const defaultPage = 100

// List returns the sinks of a namespace, or of all namespaces, sorted by namespace and ID.
func (s *Sinks) List(
	ctx context.Context, r *progressorv1.ListSinksRequest,
) (list []*progressorv1.Sink, next string, err error) {
	if r.GetNamespace() != "" {
		if err := s.engine.CheckNamespace(ctx, r.GetNamespace()); err != nil {
			return nil, "", err
		}
	}
	token, err := wire.NameAfter(r.GetPageToken())
	if err != nil {
		return nil, "", err
	}
	var after changes.SinkKey
	if token != "" {
		var ok bool
		if after.Namespace, after.SinkID, ok = strings.Cut(token, ":"); !ok { // names contain no colon
			return nil, "", process.InvalidPageToken()
		}
	}
	size := defaultPage
	if r.GetPageSize() > 0 {
		size = int(r.GetPageSize())
	}
	rows, err := changes.ListSinks(ctx, s.store, engine.Visible(ctx), r.GetNamespace(), after, size+1)
	if err != nil {
		return nil, "", err
	}
	if len(rows) > size {
		rows = rows[:size]
		next = wire.TokenAfter(rows[size-1].Namespace + ":" + rows[size-1].SinkID)
	}
	for n := range rows {
		m, err := messageOf(&rows[n])
		if err != nil {
			return nil, "", err
		}
		list = append(list, m)
	}
	return list, next, nil
}

// command is a command of package changes on a sink.
type command func(context.Context, *storage.Store, changes.SinkKey, ...process.Actor) error

func (s *Sinks) command(
	ctx context.Context, run command, namespace, id string, by []process.Actor,
) (*progressorv1.Sink, error) {
	if err := s.engine.CheckNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	k := changes.SinkKey{Namespace: namespace, SinkID: id}
	if err := run(ctx, s.store, k, by...); err != nil {
		return nil, fmt.Errorf("sink %s/%s: %w", namespace, id, err)
	}
	s.wake()
	return s.read(ctx, k)
}

// Pause stops the deliveries of a sink.
func (s *Sinks) Pause(
	ctx context.Context, r *progressorv1.PauseSinkRequest, by ...process.Actor,
) (*progressorv1.Sink, error) {
	return s.command(ctx, changes.PauseSink, r.GetNamespace(), r.GetSinkId(), by)
}

// Resume makes a sink ACTIVE.
func (s *Sinks) Resume(
	ctx context.Context, r *progressorv1.ResumeSinkRequest, by ...process.Actor,
) (*progressorv1.Sink, error) {
	return s.command(ctx, changes.ResumeSink, r.GetNamespace(), r.GetSinkId(), by)
}

// Rewind moves the cursor of a sink to a time.
func (s *Sinks) Rewind(
	ctx context.Context, r *progressorv1.RewindSinkRequest, by ...process.Actor,
) (*progressorv1.Sink, error) {
	to, err := s.cursorOf(ctx, r.GetNamespace(), "to_time", r.GetToTime().AsTime())
	if err != nil {
		return nil, err
	}
	rewind := func(ctx context.Context, store *storage.Store, k changes.SinkKey, by ...process.Actor) error {
		return changes.RewindSink(ctx, store, k, to, by...)
	}
	return s.command(ctx, rewind, r.GetNamespace(), r.GetSinkId(), by)
}

// Delete deletes a sink.
func (s *Sinks) Delete(ctx context.Context, r *progressorv1.DeleteSinkRequest, by ...process.Actor) error {
	if err := s.engine.CheckNamespace(ctx, r.GetNamespace()); err != nil {
		return err
	}
	k := changes.SinkKey{Namespace: r.GetNamespace(), SinkID: r.GetSinkId()}
	if err := changes.DeleteSink(ctx, s.store, k, by...); err != nil {
		return fmt.Errorf("sink %s/%s: %w", k.Namespace, k.SinkID, err)
	}
	s.wake()
	return nil
}
