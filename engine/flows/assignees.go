package flows

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage/flows"
)

type namesKey struct{}

// WithNames returns the context of a client. The client may answer a HUMAN wait that has assignees
// only if one of its names is an assignee. names begins with the name of the client, such as
// user:ISSUER#NAME. The names of its groups follow, such as group:NAME. In a context without names,
// the client may answer every wait.
func WithNames(ctx context.Context, names []string) context.Context {
	return context.WithValue(ctx, namesKey{}, names)
}

// sentNames returns the names of the client for a command to a wait, or nil if the client may
// answer every wait. They are the name of the client and, if the client is an assignee only as a
// member of a group, the name of that group. The other names are not sent, because the command is
// stored and other clients can read it.
func (f *Flows) sentNames(ctx context.Context, namespace, runID, stepID string, index *int32) ([]string, error) {
	names, _ := ctx.Value(namesKey{}).([]string)
	if names == nil {
		return nil, nil
	}
	row, found, err := flows.GetWait(ctx, f.store, namespace, runID, stepID, int32(indexOf(index)))
	if err != nil {
		return nil, err
	}
	sent := names[:1:1]
	if !found || row.Wait == nil {
		return sent, nil
	}
	var w waitOf
	if err := json.Unmarshal(row.Wait, &w); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(names, w.hasAssignee)
	if at > 0 {
		sent = append(sent, names[at])
	}
	return sent, nil
}

// principalPrefixes begin the names of clients and groups. An assignee without such a prefix is a
// group.
var principalPrefixes = []string{"user:", "group:", "key:", "cert:"}

// nameOf returns the client or group that an assignee names.
func nameOf(assignee string) string {
	for _, prefix := range principalPrefixes {
		if strings.HasPrefix(assignee, prefix) {
			return assignee
		}
	}
	return "group:" + assignee
}

// hasAssignee reports whether the client or group with the given name is an assignee.
func (w *waitOf) hasAssignee(name string) bool {
	return slices.ContainsFunc(w.Assignees, func(assignee string) bool { return nameOf(assignee) == name })
}

// mayAnswer reports whether a client with these names may answer the wait. A client without names
// may answer every wait.
func (w *waitOf) mayAnswer(names []string) bool {
	return names == nil || w.Kind != kindHuman || len(w.Assignees) == 0 || slices.ContainsFunc(names, w.hasAssignee)
}

// assigneesOf returns all assignees that match one of these names.
func assigneesOf(names []string) []string {
	if names == nil {
		return nil
	}
	assignees := []string{} // nil would mean that the client may answer every wait
	for _, name := range names {
		if nameOf(name) != name {
			continue // it is not the name of a client or a group
		}
		assignees = append(assignees, name)
		if short := strings.TrimPrefix(name, "group:"); nameOf(short) == name {
			assignees = append(assignees, short)
		}
	}
	return assignees
}

// checkAssignee returns an error if the client of a command is not an assignee of the wait that the
// command answers.
func (o *command) checkAssignee(row *flows.Wait) error {
	if o.Names == nil {
		return nil
	}
	var w waitOf
	if err := json.Unmarshal(row.Wait, &w); err != nil {
		return err
	}
	if w.mayAnswer(o.Names) {
		return nil
	}
	return processor.Reject(rejectedClient, "%s is not an assignee of the wait, and does not have the permission "+
		"process.operate", o.Names[0]).WithDetails([]byte("step_id"))
}
