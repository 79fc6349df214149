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

// WithNames returns the context of a client that may answer a HUMAN wait with assignees only if one
// of its names is an assignee: its own, such as user:ISSUER#NAME, and those of its groups, such as
// group:NAME. In a context without names, the client may answer every wait.
func WithNames(ctx context.Context, names []string) context.Context {
	return context.WithValue(ctx, namesKey{}, names)
}

func namesOf(ctx context.Context) []string {
	names, _ := ctx.Value(namesKey{}).([]string)
	return names
}

// principalPrefixes begin the names of clients. Other assignees are names of groups.
var principalPrefixes = []string{"user:", "group:", "key:", "cert:"}

// nameOf returns the name of the client or group that an assignee is.
func nameOf(assignee string) string {
	for _, prefix := range principalPrefixes {
		if strings.HasPrefix(assignee, prefix) {
			return assignee
		}
	}
	return "group:" + assignee
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
	isAssignee := func(assignee string) bool { return slices.Contains(o.Names, nameOf(assignee)) }
	if w.Kind != kindHuman || len(w.Assignees) == 0 || slices.ContainsFunc(w.Assignees, isAssignee) {
		return nil
	}
	return processor.Reject(rejectedClient, "%s is not an assignee of the wait, and does not have the permission "+
		"process.operate", o.Names[0]).WithDetails([]byte("step_id"))
}
