package flows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/wire"
)

// template is a version of a template, compiled, with its plan.
type template struct {
	*flow.Template
	plan    *flow.Plan
	stored  int64 // when it was stored, in microseconds
	enabled bool  // at the time of reading
}

// templateKey identifies a version of a template.
type templateKey struct {
	namespace, templateType string
	version                 int32
	stored                  int64 // in microseconds; a template that replaces a deleted one may have the same version
}

// templates caches the compiled versions that this node has used. A version never changes.
type templates struct {
	mu  sync.Mutex
	all map[templateKey]*template
}

func (c *templates) get(key templateKey) *template {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[key]
}

// templateOfRun returns the version of a template that a run uses.
func (f *Flows) templateOfRun(ctx context.Context, namespace string, s *state) (*template, error) {
	if s.Type == waitType {
		return templateOfWait(s.Wait)
	}
	if t := f.templates.get(templateKey{namespace, s.Type, s.Version, s.Stored}); t != nil {
		return t, nil
	}
	return f.template(ctx, namespace, s.Type, s.Version)
}

// templateToStart returns the template that a command to start a run names.
func (f *Flows) templateToStart(ctx context.Context, key process.Key, o *command) (*template, error) {
	if o.Type == waitType {
		return templateOfWait(o.Wait)
	}
	if t := f.starting.get(key, o); t != nil {
		return t, nil
	}
	return f.template(ctx, key.Namespace, o.Type, o.Version)
}

// maxTemplates limits the number of cached templates. Each takes at most about 100 KB.
const maxTemplates = 1000

// template reads a version of a template. Version 0 means the newest.
func (f *Flows) template(ctx context.Context, namespace, templateType string, version int32) (*template, error) {
	head, err := flows.HeadTemplate(ctx, f.store, namespace, templateType, version)
	if err != nil {
		return nil, fmt.Errorf("template %s/%s: %w", namespace, templateType, err)
	}
	c := &f.templates
	if known := c.get(templateKey{namespace, templateType, head.Version, head.UpdatedTime.UnixMicro()}); known != nil {
		return &template{Template: known.Template, plan: known.plan, stored: known.stored, enabled: head.Enabled}, nil
	}
	row, err := flows.GetTemplate(ctx, f.store, namespace, templateType, head.Version)
	if err != nil {
		return nil, fmt.Errorf("template %s/%s: %w", namespace, templateType, err)
	}
	key := templateKey{namespace, templateType, row.Version, row.UpdatedTime.UnixMicro()}
	source := &progressorv1.Template{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(row.Definition, source); err != nil {
		return nil, fmt.Errorf("template %s/%s: %w", namespace, templateType, err)
	}
	source.Version = row.Version
	compiled, problems := flow.Compile(source)
	if len(problems) > 0 {
		return nil, fmt.Errorf("template %s/%s, version %d: %w", namespace, templateType, row.Version,
			invalid(problems))
	}
	t := &template{Template: compiled, stored: key.stored, enabled: row.Enabled}
	t.plan = compiled.Plan(func(attempt int32) time.Duration {
		return wire.Backoff(source.GetRetryPolicy().GetBackoff(), attempt-1, 0.5)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil || len(c.all) >= maxTemplates {
		c.all = map[templateKey]*template{}
	}
	c.all[key] = t
	return t, nil
}

// scope returns the scope that a run requests with its dedupe key.
func (t *template) scope(namespace, key, runID string) flows.Scope {
	p := t.Concurrency()
	return flows.Scope{
		Namespace: namespace, TemplateType: t.Source.GetType(), DedupeKey: key, RunID: runID, Once: !t.Repeatable(),
		Alone: p != progressorv1.ScopePolicy_SCOPE_POLICY_ALLOW,
		Queues: p == progressorv1.ScopePolicy_SCOPE_POLICY_QUEUE_SAME_SCOPE ||
			p == progressorv1.ScopePolicy_SCOPE_POLICY_CANCEL_SAME_SCOPE,
	}
}

// rejectsDuplicates reports whether a run is rejected while another run holds its dedupe key.
func (t *template) rejectsDuplicates() bool {
	p := t.Concurrency()
	return p == progressorv1.ScopePolicy_SCOPE_POLICY_REJECT_SAME_SCOPE ||
		p == progressorv1.ScopePolicy_SCOPE_POLICY_RETURN_SAME_SCOPE
}

// invalid converts problems to the error of a request. The error names the field of the first
// problem.
func invalid(problems []flow.Problem) error { return invalidBy(problems) }

// breaksSchema is like invalid, but for a payload that violates the schema of the template.
func breaksSchema(problems []flow.Problem) error {
	wrong := invalidBy(problems)
	wrong.Schema = true
	return wrong
}

func invalidBy(problems []flow.Problem) *process.InvalidError {
	text := ""
	for _, p := range problems[1:] {
		text += "; " + p.String()
	}
	return &process.InvalidError{Field: cmp.Or(problems[0].Path, "template"), Message: problems[0].Message + text}
}

// PutTemplate stores the next version of a template, unless the newest version is equal. With
// validate_only, it only checks the template.
func (f *Flows) PutTemplate(
	ctx context.Context, r *progressorv1.PutTemplateRequest, by ...process.Actor,
) (*progressorv1.PutTemplateResponse, error) {
	t := proto.CloneOf(r.GetTemplate())
	if err := f.engine.CheckNamespace(ctx, t.GetNamespace()); err != nil {
		return nil, err
	}
	enabled := t.Enabled
	t.Version, t.Enabled, t.CreatedTime, t.UpdatedTime = 0, nil, nil, nil
	_, problems := flow.Compile(t)
	if len(problems) == 0 {
		problems = flow.Refused(t)
	}
	if len(problems) > 0 {
		for i := range problems {
			problems[i].Path = "template." + problems[i].Path
		}
		return nil, invalid(problems)
	}
	text, err := definitionJSON(t)
	if err != nil {
		return nil, err
	}
	if r.GetValidateOnly() {
		return &progressorv1.PutTemplateResponse{Template: r.GetTemplate()}, nil
	}
	expected := int32(-1)
	if r.ExpectedVersion != nil {
		expected = r.GetExpectedVersion()
	}
	created, err := flows.Put(ctx, f.store, t.GetNamespace(), t.GetType(), text, enabled, expected, by,
		func(row flows.Template) (bool, error) {
			newest := &progressorv1.Template{}
			err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(row.Definition, newest)
			return err == nil && flow.Same(newest, t), nil
		})
	if err != nil {
		return nil, err
	}
	got, err := f.GetTemplate(ctx, &progressorv1.GetTemplateRequest{Namespace: t.GetNamespace(), Type: t.GetType()})
	return &progressorv1.PutTemplateResponse{Template: got.GetTemplate(), Created: created}, err
}

// definitionJSON returns the stored form of a template.
func definitionJSON(t *progressorv1.Template) ([]byte, error) {
	text, err := wire.MessageJSON(t)
	if err != nil {
		return nil, err
	}
	if len(text) > process.MaxTemplateBytes {
		return nil, &process.InvalidError{
			Field: "template", TooLarge: true,
			Message: fmt.Sprintf("must have at most %d bytes of JSON (got %d)", process.MaxTemplateBytes, len(text)),
		}
	}
	return text, nil
}

// GetTemplate returns a version of a template.
func (f *Flows) GetTemplate(
	ctx context.Context, r *progressorv1.GetTemplateRequest,
) (*progressorv1.GetTemplateResponse, error) {
	row, err := flows.GetTemplate(ctx, f.store, r.GetNamespace(), r.GetType(), r.GetVersion())
	if err != nil {
		newest, newestErr := flows.GetTemplate(ctx, f.store, r.GetNamespace(), r.GetType(), 0)
		if r.GetVersion() != 0 && newestErr == nil && errors.Is(err, process.ErrTemplateNotFound) {
			return nil, fmt.Errorf("version %d of template %s/%s (the newest is %d): %w", r.GetVersion(),
				r.GetNamespace(), r.GetType(), newest.Version, err)
		}
		return nil, f.missingTemplate(ctx, r.GetNamespace(), r.GetType(), err)
	}
	m, err := templateOf(flows.Listed{
		TemplateType: r.GetType(), Version: row.Version, Definition: row.Definition, UpdatedTime: row.UpdatedTime,
		CreatedTime: row.CreatedTime, Enabled: row.Enabled,
	})
	if err != nil {
		return nil, err
	}
	versions, err := flows.Versions(ctx, f.store, r.GetNamespace(), r.GetType())
	return &progressorv1.GetTemplateResponse{Template: m, Versions: versions}, err
}

func templateOf(row flows.Listed) (*progressorv1.Template, error) {
	m := &progressorv1.Template{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(row.Definition, m); err != nil {
		return nil, fmt.Errorf("template %s: %w", row.TemplateType, err)
	}
	m.Version, m.Enabled = row.Version, &row.Enabled
	m.CreatedTime, m.UpdatedTime = timestamppb.New(row.CreatedTime), timestamppb.New(row.UpdatedTime)
	return m, nil
}

// EnableTemplate enables or disables starting new runs of a template.
func (f *Flows) EnableTemplate(
	ctx context.Context, namespace, templateType string, enabled bool, by ...process.Actor,
) (*progressorv1.Template, error) {
	if err := flows.Enable(ctx, f.store, namespace, templateType, enabled, by); err != nil {
		return nil, f.missingTemplate(ctx, namespace, templateType, err)
	}
	got, err := f.GetTemplate(ctx, &progressorv1.GetTemplateRequest{Namespace: namespace, Type: templateType})
	return got.GetTemplate(), err
}

// DeleteTemplate deletes a template with all its versions, unless a run of it has not ended.
func (f *Flows) DeleteTemplate(ctx context.Context, namespace, templateType string, by ...process.Actor) error {
	open, err := flows.Delete(ctx, f.store, namespace, templateType, by)
	if err != nil {
		return f.missingTemplate(ctx, namespace, templateType, err)
	}
	if open != "" {
		return &TemplateError{
			fmt.Sprintf("run %s of template %s has not ended: cancel it, or wait for it", open, templateType),
		}
	}
	return nil
}

func (f *Flows) missingTemplate(ctx context.Context, namespace, templateType string, err error) error {
	if missing := f.engine.CheckNamespace(ctx, namespace); missing != nil {
		return missing
	}
	return fmt.Errorf("template %s/%s: %w", namespace, templateType, err)
}

// resultJSON returns the stored form of a value. Errors name the given field.
func resultJSON(field string, v *structpb.Value) ([]byte, error) {
	text, err := wire.ValueJSON(v)
	if err != nil {
		return nil, &process.InvalidError{Field: field, Message: err.Error()}
	}
	if len(text) > process.MaxPayloadBytes {
		return nil, &process.InvalidError{
			Field: field, TooLarge: true,
			Message: fmt.Sprintf("must have at most %d bytes of JSON (got %d)", process.MaxPayloadBytes, len(text)),
		}
	}
	return text, nil
}

// metadataJSON returns the stored form of the metadata of a run, or nil if m is nil.
func metadataJSON(m *structpb.Struct) ([]byte, error) {
	text, err := wire.JSON(m)
	if err != nil {
		return nil, &process.InvalidError{Field: "metadata", Message: err.Error()}
	}
	if len(text) > process.MaxMetadataBytes {
		return nil, &process.InvalidError{
			Field: "metadata", TooLarge: true,
			Message: fmt.Sprintf("must have at most %d bytes of JSON (got %d)", process.MaxMetadataBytes, len(text)),
		}
	}
	return text, nil
}
