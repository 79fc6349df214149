package flows

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/storage/search"
	"github.com/progressor-engine/progressor/wire"
)

// ListTemplates returns the newest version of each template of a namespace, ordered by type.
func (f *Flows) ListTemplates(
	ctx context.Context, r *progressorv1.ListTemplatesRequest,
) (list []*progressorv1.Template, next string, err error) {
	if err := f.engine.CheckNamespace(ctx, r.GetNamespace()); err != nil {
		return nil, "", err
	}
	after, err := base64.RawURLEncoding.Strict().DecodeString(r.GetPageToken())
	if err != nil || !utf8.Valid(after) || slices.Contains(after, 0) {
		return nil, "", process.InvalidPageToken()
	}
	limit := defaultPage
	if r.GetPageSize() > 0 {
		limit = min(int(r.GetPageSize()), maxPage)
	}
	rows, more, err := flows.ListTemplates(ctx, f.store, r.GetNamespace(), string(after), limit+1)
	if err != nil {
		return nil, "", err
	}
	if len(rows) > limit {
		rows, more = rows[:limit], true
	}
	for _, row := range rows {
		m, err := templateOf(row)
		if err != nil {
			return nil, "", err
		}
		list = append(list, m)
	}
	if more {
		return list, base64.RawURLEncoding.EncodeToString([]byte(rows[len(rows)-1].TemplateType)), nil
	}
	return list, "", nil
}

// ListRuns returns the runs of a namespace that match a filter (see storage/search), without their
// steps. A page may have fewer runs than requested, or none, and still have a next page.
func (f *Flows) ListRuns(
	ctx context.Context, r *progressorv1.ListRunsRequest,
) (list []*progressorv1.Run, next string, err error) {
	if err := f.engine.CheckNamespace(ctx, r.GetNamespace()); err != nil {
		return nil, "", err
	}
	page, err := search.ListRuns(ctx, f.store, search.RunQuery{
		Namespace: r.GetNamespace(), Filter: r.GetFilter(), OrderBy: r.GetOrderBy(), PageSize: int(r.GetPageSize()),
		PageToken: r.GetPageToken(),
	})
	if err != nil {
		return nil, "", err
	}
	statuses := map[string][]*search.RunStep{}
	for n := range page.Steps {
		s := &page.Steps[n]
		statuses[s.RunID] = append(statuses[s.RunID], s)
	}
	known := map[templateKey]*template{}
	for n := range page.Runs {
		m, err := f.listed(ctx, &page.Runs[n], statuses[page.Runs[n].RunID], known)
		if err != nil {
			return nil, "", err
		}
		list = append(list, m)
	}
	return list, page.NextPageToken, nil
}

// listed converts a row of a list to a run. The result is the same as that of Get, but without
// steps. known caches the templates of the previous runs, with nil for a deleted template.
func (f *Flows) listed(
	ctx context.Context, row *search.Run, statuses []*search.RunStep, known map[templateKey]*template,
) (*progressorv1.Run, error) {
	r := flows.Run(*row)
	run, err := runOf(&r)
	if err != nil {
		return nil, err
	}
	k, err := keptOf(&r)
	if err != nil {
		return nil, err
	}
	key := templateKey{r.Namespace, r.TemplateType, r.TemplateVersion, k.Stored}
	t, met := known[key]
	if !met {
		if t, err = f.templateOfRow(ctx, key); err != nil {
			return nil, err
		}
		known[key] = t
	}
	if t == nil {
		run.Progress = unknownProgress(run)
		return run, nil
	}
	steps := newSteps(t)
	for _, s := range statuses {
		i, ok := t.Index(s.StepID)
		if !ok {
			continue
		}
		m := steps[i].Step
		m.Status, m.WorkerId, m.RunningTime = stepStatuses[s.Status], s.WorkerID,
			startOf(s.RunningTime, s.HeldTime, s.Queued)
		steps[i].queued, steps[i].tried = s.Queued, s.Tried
		if s.Queued {
			m.Status = progressorv1.StepStatus_STEP_STATUS_PENDING
		}
		if s.LeaseExpiresTime.Unix() > 0 {
			m.LeaseExpiresTime = timestamppb.New(s.LeaseExpiresTime)
		}
		if m.Progress, err = progressOf(s.Progress); err != nil {
			return nil, err
		}
	}
	summarize(run, t, steps, k.Run.Each)
	return run, nil
}

// newSteps returns the steps of a run that has not begun, in the order of the template.
func newSteps(t *template) []step {
	all := make([]step, len(t.Steps))
	for i := range t.Steps {
		s := &t.Steps[i]
		all[i] = step{
			Step: &progressorv1.Step{
				StepId: s.ID, Name: s.Source.GetName(), Status: progressorv1.StepStatus_STEP_STATUS_PENDING,
			}, action: s.Action,
		}
	}
	return all
}

// unknownProgress returns the progress of a run whose template was deleted.
func unknownProgress(run *progressorv1.Run) *progressorv1.Progress {
	p := &progressorv1.Progress{}
	if run.GetStatus() == progressorv1.RunStatus_RUN_STATUS_SUCCEEDED {
		p.Percent = 100
	}
	return p
}

func progressOf(text []byte) (*progressorv1.Progress, error) {
	if len(text) == 0 {
		return nil, nil
	}
	m := &progressorv1.Progress{}
	if err := protojson.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("progress of a step: %w", err)
	}
	return m, nil
}

// kept contains the fields of a run that are stored only in its state, not in columns of its row.
type kept struct {
	Stored int64 `json:"stored"`
	Run    struct {
		Each map[int]*flow.Each `json:"each"`
	} `json:"run"`
}

func keptOf(row *flows.Run) (*kept, error) {
	k := &kept{}
	if err := json.Unmarshal(row.AuxState, k); err != nil {
		return nil, fmt.Errorf("state of run %s/%s: %w", row.Namespace, row.RunID, err)
	}
	return k, nil
}

// WaitingNamespaces returns the visible namespaces that have open waits, sorted.
func (f *Flows) WaitingNamespaces(ctx context.Context) ([]string, error) {
	names, leave, err := f.engine.Enter(ctx, "")
	if err != nil {
		return nil, err
	}
	defer leave()
	return flows.WaitingNamespaces(ctx, f.store, names)
}

// ListOpenWaits returns the open waits of a namespace, ordered by due time. The names in ctx
// determine which of them the client may answer.
func (f *Flows) ListOpenWaits(
	ctx context.Context, r *progressorv1.ListOpenWaitsRequest,
) (list []*progressorv1.OpenWait, next string, err error) {
	if err := f.engine.CheckNamespace(ctx, r.GetNamespace()); err != nil {
		return nil, "", err
	}
	names, _ := ctx.Value(namesKey{}).([]string)
	q := search.WaitQuery{
		Namespace: r.GetNamespace(), Filter: r.GetFilter(), PageSize: int(r.GetPageSize()), PageToken: r.GetPageToken(),
	}
	if r.GetAnswerable() {
		q.Assignees = assigneesOf(names)
	}
	page, err := search.ListWaits(ctx, f.store, q)
	if err != nil {
		return nil, "", err
	}
	for n := range page.Waits {
		m, err := waitOfRow(r.GetNamespace(), &page.Waits[n], names)
		if err != nil {
			return nil, "", err
		}
		list = append(list, m)
	}
	return list, page.NextPageToken, nil
}

// waitOfRow converts a row of a list for a client with these names.
func waitOfRow(namespace string, row *search.Wait, names []string) (m *progressorv1.OpenWait, err error) {
	var w waitOf
	if err := json.Unmarshal(row.Wait, &w); err != nil {
		return nil, fmt.Errorf("wait %s/%s/%s: %w", namespace, row.RunID, row.StepID, err)
	}
	m = &progressorv1.OpenWait{
		Namespace: namespace, RunId: row.RunID, StepId: row.StepID, Kind: progressorv1.WaitAction_KIND_EXTERNAL,
		Title: w.Title, Assignees: w.Assignees,
		Token: row.Token, CreatedTime: stamp(row.RunningTime), DueTime: stamp(row.DueTime),
		CancelRequested: row.CancelRequested, Answerable: w.mayAnswer(names), WorkerId: row.WorkerID,
	}
	if w.Kind == kindHuman {
		m.Kind = progressorv1.WaitAction_KIND_HUMAN
	}
	if row.Index >= 0 {
		m.Index = &row.Index
	}
	if m.ResultSchema, err = wire.Struct(w.Schema); err != nil {
		return nil, err
	}
	m.Input, err = wire.Value(row.Input)
	return m, err
}
