package engine

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/erasure"
)

const (
	// eraseTime is how long one EraseProcess request erases.
	eraseTime = 5 * time.Second
	// eraseTogether is the maximum number of processes in a set. The processes of a set are erased
	// together, and each set needs a pass over the tables.
	eraseTogether = 20
	// eraseRecorded is the maximum age of an audit entry that a request with a page token reuses. A
	// token does not prove that the entry exists, because clients could invent tokens.
	eraseRecorded = time.Hour
)

// erasureToken is a page token of EraseProcess. With an invented token, a client can only skip rows
// of its own erasure, because each request removes the processes of its sets again.
type erasureToken struct {
	Set      string           `json:"s"` // digest of the set with which the next request continues
	Progress erasure.Progress `json:"p"`
}

func (t erasureToken) String() string {
	text, _ := json.Marshal(t) // strings and a number
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseErasureToken(text string) (t erasureToken, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(raw, &t) != nil {
		return t, process.InvalidPageToken()
	}
	return t, nil
}

// setDigest identifies a set in page tokens.
func setDigest(e erasure.Set) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %t %q", e.Namespace, e.DryRun, e.IDs))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// erasurePage limits a request of EraseProcess. A request erases at least one batch.
type erasurePage struct {
	time time.Duration
	rows int // in a batch
}

// EraseProcess erases a process for at most eraseTime. It can be repeated after an error, with or
// without the page token.
func (e *Engine) EraseProcess(
	ctx context.Context, r *progressorv1.EraseProcessRequest, by process.Actor,
) (*progressorv1.EraseProcessResponse, error) {
	return e.eraseProcess(ctx, r, by, erasurePage{time: eraseTime, rows: erasure.PageRows})
}

func (e *Engine) eraseProcess(
	ctx context.Context, r *progressorv1.EraseProcessRequest, by process.Actor, page erasurePage,
) (*progressorv1.EraseProcessResponse, error) {
	if _, err := e.namespace(ctx, r.GetNamespace()); err != nil {
		return nil, err
	}
	sets, err := e.erasedSets(ctx, r)
	if err != nil {
		return nil, err
	}
	w := eraser{
		Engine: e, by: by, rows: page.rows, end: time.Now().Add(page.time),
		response: &progressorv1.EraseProcessResponse{Rows: map[string]int64{}},
	}
	n := 0
	if r.GetPageToken() == "" {
		err = e.checkErasable(ctx, sets)
	} else {
		n, err = w.resume(r.GetPageToken(), sets)
	}
	if err != nil {
		return nil, err
	}
	for ; n < len(sets); n++ {
		ended, err := w.erase(ctx, sets[n])
		if err != nil {
			return nil, err
		}
		if ended {
			w.progress, w.recorded = erasure.Progress{}, 0
		}
		if next := n + 1; ended && next < len(sets) && !time.Now().Before(w.end) {
			n, ended = next, false
		}
		if !ended {
			w.response.NextPageToken = erasureToken{setDigest(sets[n]), w.progress}.String()
			break
		}
	}
	return w.response, nil
}

// erasedSets returns the processes that a request erases, in sets. A run comes after the processes
// that its steps have started, because its steps contain the IDs of these processes until the run
// is removed. As a result, each request finds the same sets, except for those that previous
// requests have erased completely.
func (e *Engine) erasedSets(
	ctx context.Context, r *progressorv1.EraseProcessRequest,
) (sets []erasure.Set, err error) {
	var createdBefore *time.Time
	if t := r.GetCreatedBefore(); t != nil {
		createdBefore = new(t.AsTime())
	}
	level := []string{r.GetProcessId()}
	levels, n := [][]string{level}, 0
	found := map[string]bool{r.GetProcessId(): true}
	for r.GetChildren() {
		started, err := erasure.StartedBy(ctx, e.store, r.GetNamespace(), level)
		if err != nil {
			return nil, err
		}
		level = slices.DeleteFunc(started, func(id string) bool { return found[id] })
		if len(level) == 0 {
			break
		}
		for _, id := range level {
			found[id] = true
		}
		if n += len(level); n > erasure.MaxChildren {
			return nil, &process.InvalidError{Field: "children", TooLarge: true, Message: fmt.Sprintf(
				"a run can be erased with at most %d processes: erase the processes of its steps first",
				erasure.MaxChildren)}
		}
		levels = append(levels, level)
	}
	var runs []string // runs whose steps were read
	for _, level := range levels {
		for ids := range slices.Chunk(level, eraseTogether) {
			sets = append(sets, erasure.Set{
				Namespace: r.GetNamespace(), IDs: ids, LaterRuns: slices.Clip(runs), DryRun: r.GetDryRun(),
				CreatedBefore: createdBefore,
			})
		}
		if r.GetChildren() {
			runs = append(runs, erasure.Runs(level)...)
		}
	}
	slices.Reverse(sets)
	return sets, nil
}

// checkErasable returns an error if a process of the sets could still change.
func (e *Engine) checkErasable(ctx context.Context, sets []erasure.Set) error {
	all := erasure.Set{Namespace: sets[0].Namespace, CreatedBefore: sets[0].CreatedBefore}
	for _, set := range sets {
		all.IDs = append(all.IDs, set.IDs...)
	}
	processes, err := erasure.NotErasable(ctx, e.store, all)
	if err != nil || len(processes) == 0 {
		return err
	}
	return all.Check(processes[0])
}

// eraser is a request of EraseProcess.
type eraser struct {
	*Engine
	by       process.Actor
	rows     int
	end      time.Time
	response *progressorv1.EraseProcessResponse
	progress erasure.Progress // in the current set
	recorded time.Duration    // how old the audit entries of the current set may be
}

// resume returns the index of the set with which a request continues.
func (w *eraser) resume(pageToken string, sets []erasure.Set) (int, error) {
	token, err := parseErasureToken(pageToken)
	if err != nil {
		return 0, err
	}
	n := slices.IndexFunc(sets, func(set erasure.Set) bool { return setDigest(set) == token.Set })
	if n < 0 {
		return 0, process.InvalidPageToken()
	}
	w.progress, w.recorded = token.Progress, eraseRecorded
	return n, nil
}

// erase erases a set, and reports whether it was completed in time. It starts over if a process of
// the set was started again.
func (w *eraser) erase(ctx context.Context, set erasure.Set) (ended bool, err error) {
	if !set.DryRun {
		if err := w.checkErasable(ctx, []erasure.Set{set}); err != nil { // before the audit entry
			return false, err
		}
		if err := erasure.Record(ctx, w.store, set, w.by, w.recorded); err != nil {
			return false, err
		}
	}
	for {
		if err := w.remove(ctx, set); err != nil {
			return false, err
		}
		for err == nil {
			var batch erasure.Batch
			if batch, err = erasure.EraseRows(ctx, w.store, set, &w.progress, w.rows); err != nil {
				break
			}
			if w.response.Read += batch.Read; batch.Rows > 0 {
				w.response.Rows[batch.Table] += batch.Rows
			}
			if batch.LastOfTables {
				return true, nil
			}
			if !time.Now().Before(w.end) {
				return false, nil
			}
		}
		if !errors.Is(err, erasure.ErrExists) {
			return false, err
		}
		w.progress, err = erasure.Progress{}, nil
	}
}

// remove removes the processes of a set that exist. A dry run counts them.
func (w *eraser) remove(ctx context.Context, set erasure.Set) error {
	if set.DryRun && w.progress != (erasure.Progress{}) { // a previous request has counted them
		return nil
	}
	for {
		processes, err := erasure.Processes(ctx, w.store, set)
		if err != nil || len(processes) == 0 {
			return err
		}
		ids, keys := make([]string, len(processes)), make([]process.Key, len(processes))
		for n, p := range processes {
			if err := set.Check(p); err != nil {
				return err
			}
			ids[n], keys[n] = p.ProcessID, process.Key{Namespace: set.Namespace, ProcessID: p.ProcessID}
		}
		events, tasks, err := erasure.CountHistories(ctx, w.store, set.Namespace, ids)
		if err != nil {
			return err
		}
		for table, rows := range map[string]int64{"processes": int64(len(ids)), "events": events, "tasks": tasks} {
			if rows > 0 {
				w.response.Rows[table] += rows
			}
		}
		if set.DryRun {
			return nil
		}
		w.progress = erasure.Progress{} // the processes have new rows in all tables
		if err := w.RemoveStopped(ctx, set.Namespace, keys); err != nil {
			return err
		}
	}
}
