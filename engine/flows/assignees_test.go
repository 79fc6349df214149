package flows_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// answerAs answers a wait, or reports its progress, as a client with these names. Without names,
// the client may answer every wait.
func (n *node) answerAs(t *testing.T, report bool, step, token string, names ...string) error {
	t.Helper()
	ctx := t.Context()
	if names != nil {
		ctx = flows.WithNames(ctx, names)
	}
	if report {
		_, err := n.Report(ctx, &progressorv1.ReportStepRequest{
			Namespace: "pull", RunId: "r", StepId: step, Token: token, Due: seconds(3600),
		}, kim)
		return err
	}
	_, err := n.Complete(ctx, &progressorv1.CompleteStepRequest{
		Namespace: "pull", RunId: "r", StepId: step, Token: token,
		Outcome: &progressorv1.CompleteStepRequest_Result{},
	}, kim)
	return err
}

// wantAnswerable checks which waits of TestAssignees are answerable for clients, in lists of all
// waits and in lists of answerable waits.
func (n *node) wantAnswerable(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		want  string
		names []string
	}{
		{"anyone group key operated outside prefixed user", nil},
		{"anyone outside", []string{"key:a", "group:staff:sales"}},
		{"anyone outside", []string{"sales", "kim"}},
		{"anyone group outside user", []string{"user:https://login.example.com#bob", "group:a", "group:sales"}},
		{"anyone group outside user", []string{"user:https://login.example.com#ann"}},
		{"anyone outside", []string{"group:user:https://login.example.com#ann"}},
		{"anyone key outside prefixed", []string{"key:k3"}},
		{"anyone key outside prefixed", []string{"key:a", "group:staff:ops"}},
		{"anyone operated outside", []string{"key:a", "group:kim"}},
	} {
		ctx := t.Context()
		if c.names != nil {
			ctx = flows.WithNames(ctx, c.names)
		}
		for _, only := range []bool{false, true} {
			var answerable []string
			r := &progressorv1.ListOpenWaitsRequest{Namespace: "pull", PageSize: 2, Answerable: only}
			for more := true; more; more = r.PageToken != "" {
				page, next, err := n.ListOpenWaits(ctx, r)
				if err != nil {
					t.Fatal(err)
				}
				for _, w := range page {
					if w.GetAnswerable() {
						answerable = append(answerable, w.GetStepId())
					} else if only {
						t.Errorf("%q: %s is listed", c.names, w.GetStepId())
					}
				}
				r.PageToken = next
			}
			slices.Sort(answerable)
			if got := strings.Join(answerable, " "); got != c.want {
				t.Errorf("%q: %s, want %s", c.names, got, c.want)
			}
		}
	}
}

// A client with names may answer a HUMAN wait that has assignees, or report its progress, only if
// one of the names is an assignee. The token is not enough, because every client that may answer
// waits sees the token.
func TestAssignees(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "ask", "step_order": "STEP_ORDER_GRAPH", "steps": [
		{"step_id": "group", "wait": {"kind": "KIND_HUMAN", "assignees": ["sales", "${payload.who}"]}},
		{"step_id": "user", "wait": {"kind": "KIND_HUMAN", "assignees": ["sales", "${payload.who}"]}},
		{"step_id": "key", "wait": {"kind": "KIND_HUMAN", "assignees": ["key:k3", "group:staff:ops"]}},
		{"step_id": "prefixed", "wait": {"kind": "KIND_HUMAN", "assignees": ["key:k3", "group:staff:ops"]}},
		{"step_id": "operated", "wait": {"kind": "KIND_HUMAN", "assignees": ["kim"]}},
		{"step_id": "anyone", "wait": {"kind": "KIND_HUMAN"}},
		{"step_id": "outside", "wait": {"assignees": ["kim"]}}]}`)
	n.run(t, "pull", "ask", "r", `{"who": "user:https://login.example.com#ann"}`)
	n.until(t, "pull", "r", "WAITING_WORKER")
	for _, c := range []struct {
		step  string
		names []string
	}{
		{"group", []string{"key:a"}},
		{"group", []string{"sales"}},
		{"group", []string{"user:https://login.example.com#sales", "group:sale", "group:staff:sales"}},
		{"user", []string{"user:https://other.example.com#ann"}},
		{"user", []string{"group:user:https://login.example.com#ann"}},
		{"key", []string{"key:k", "group:k3", "group:ops"}},
		{"operated", []string{"key:kim", "user:https://login.example.com#kim"}},
	} {
		for _, report := range []bool{false, true} {
			for _, token := range []string{"", n.token(t, "r", c.step)} {
				err := n.answerAs(t, report, c.step, token, c.names...)
				denied, ok := errors.AsType[*process.DeniedError](err)
				if !ok || denied.Field != "step_id" || denied.Namespace != "pull" ||
					!strings.HasPrefix(denied.Message, c.names[0]+" is not an assignee of the wait") {
					t.Errorf("%s as %q: %v", c.step, c.names, err)
				}
			}
		}
	}
	n.wantAnswerable(t)
	for step, names := range map[string][]string{
		"group":    {"user:https://login.example.com#bob", "group:a", "group:sales"},
		"user":     {"user:https://login.example.com#ann"},
		"key":      {"key:k3"},
		"prefixed": {"key:other", "group:staff:ops"},
		"operated": nil, // as an operator, or without authentication
		"anyone":   {"key:a"},
		"outside":  {"key:a"},
	} {
		for _, report := range []bool{true, false} {
			if err := n.answerAs(t, report, step, n.token(t, "r", step), names...); err != nil {
				t.Errorf("%s as %q: %v", step, names, err)
			}
		}
	}
	// The tasks of the run, which other clients can read, contain only groups that are assignees.
	for group, want := range map[string]bool{
		"group:a": false, "group:sale": false, "group:staff:sales": false, "group:k3": false, "group:ops": false,
		"group:sales": true, "group:staff:ops": true,
	} {
		var stored bool
		if err := n.DB.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM tasks
				WHERE process_id = '~flow/r' AND position('"' || $1 || '"' IN encode(args, 'escape')) > 0)`,
			group).Scan(&stored); err != nil {
			t.Fatal(err)
		}
		if stored != want {
			t.Errorf("tasks contain %s: %v, want %v", group, stored, want)
		}
	}
}
