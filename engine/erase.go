package engine

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/erasure"
)

const (
	// eraseTime is how long a request of EraseProcess works.
	eraseTime = 5 * time.Second
	// eraseTogether is how many processes are erased together, because each set of them costs a
	// walk through the tables.
	eraseTogether = 20
)

// erasureToken is a page token of EraseProcess.
type erasureToken struct {
	Set      int              `json:"s"` // number of the set in a dry run; erased sets have no number
	Begun    bool             `json:"b"` // the processes of the set are removed
	Progress erasure.Progress `json:"p"`
}

func (t erasureToken) String() string {
	text, _ := json.Marshal(t) // numbers and a string
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseErasureToken(text string) (t erasureToken, err error) {
	if text == "" {
		return t, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(raw, &t) != nil || t.Set < 0 {
		return t, process.InvalidPageToken()
	}
	return t, nil
}

// EraseProcess erases a process for at most eraseTime. It can be repeated after an error, with or
// without the page token.
func (e *Engine) EraseProcess(
	ctx context.Context, r *progressorv1.EraseProcessRequest, by process.Actor,
) (*progressorv1.EraseProcessResponse, error) {
	token, err := parseErasureToken(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	if _, err := e.namespace(ctx, r.GetNamespace()); err != nil {
		return nil, err
	}
	sets, err := e.erasedSets(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.GetPageToken() == "" {
		for _, set := range sets {
			if err := e.checkErasable(ctx, set); err != nil {
				return nil, err
			}
		}
	}
	response := &progressorv1.EraseProcessResponse{Rows: map[string]int64{}}
	n := 0
	if r.GetDryRun() {
		n = token.Set
	}
	for end := time.Now().Add(eraseTime); n < len(sets); n++ {
		if !token.Begun {
			if err := e.beginErasure(ctx, sets[n], by, response); err != nil {
				return nil, err
			}
			token.Begun = true
		}
		for ended := false; !ended; {
			if time.Now().After(end) {
				token.Set = n
				response.NextPageToken = token.String()
				return response, nil
			}
			batch, err := erasure.EraseRows(ctx, e.store, sets[n], &token.Progress)
			if err != nil {
				return nil, err
			}
			if response.Read += batch.Read; batch.Rows > 0 {
				response.Rows[batch.Table] += batch.Rows
			}
			ended = batch.LastOfTables
		}
		token = erasureToken{}
	}
	return response, nil
}

// erasedSets returns the processes that a request erases, in sets. A run comes after what its steps
// have started, so that a repeated request still finds these.
func (e *Engine) erasedSets(
	ctx context.Context, r *progressorv1.EraseProcessRequest,
) (sets []erasure.Set, err error) {
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
				"at most %d processes are erased with a run: erase those of its steps first",
				erasure.MaxChildren)}
		}
		levels = append(levels, level)
	}
	slices.Reverse(levels)
	for _, level := range levels {
		for ids := range slices.Chunk(level, eraseTogether) {
			sets = append(sets, erasure.Set{Namespace: r.GetNamespace(), IDs: ids, DryRun: r.GetDryRun()})
		}
	}
	return sets, nil
}

// checkErasable returns an error if a process of a set could still change.
func (e *Engine) checkErasable(ctx context.Context, set erasure.Set) error {
	processes, err := erasure.Processes(ctx, e.store, set)
	if err != nil {
		return err
	}
	for _, p := range processes {
		if p.Status == process.StatusInit || p.Status == process.StatusRunning {
			return &process.WrongStatusError{
				Key: process.Key{Namespace: set.Namespace, ProcessID: p.ProcessID}, Status: p.Status,
				Reason: "only a process that has ended or is suspended can be erased: cancel or suspend it first",
			}
		}
	}
	return nil
}

// beginErasure removes the processes of a set. A dry run counts them.
func (e *Engine) beginErasure(
	ctx context.Context, set erasure.Set, by process.Actor, response *progressorv1.EraseProcessResponse,
) error {
	if !set.DryRun {
		if err := erasure.Record(ctx, e.store, set, by); err != nil {
			return err
		}
	}
	for {
		processes, err := erasure.Processes(ctx, e.store, set)
		if err != nil || len(processes) == 0 {
			return err
		}
		ids, keys := make([]string, len(processes)), make([]process.Key, len(processes))
		for n, p := range processes {
			ids[n], keys[n] = p.ProcessID, process.Key{Namespace: set.Namespace, ProcessID: p.ProcessID}
		}
		events, tasks, err := erasure.CountHistories(ctx, e.store, set.Namespace, ids)
		if err != nil {
			return err
		}
		for table, rows := range map[string]int64{"processes": int64(len(ids)), "events": events, "tasks": tasks} {
			if rows > 0 {
				response.Rows[table] += rows
			}
		}
		if set.DryRun {
			return nil
		}
		if err := e.checkErasable(ctx, set); err != nil { // it may have been resumed or started again
			return err
		}
		if err := e.RemoveProcesses(ctx, set.Namespace, keys); err != nil {
			return err
		}
	}
}
