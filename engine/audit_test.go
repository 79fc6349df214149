package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// audited returns audit entries in a short form, oldest first.
func (n *node) audited(t testing.TB, namespace, filter string) []string {
	t.Helper()
	var list []string
	token := ""
	for page := true; page; page = token != "" {
		entries, next, err := n.ListAudit(t.Context(), &progressorv1.ListAuditRequest{
			Namespace: namespace, Filter: filter, PageSize: 2, PageToken: token,
		})
		if err != nil || len(entries) > 2 {
			t.Fatalf("%v, %v", entries, err)
		}
		for _, e := range entries {
			short := fmt.Sprint(e.GetMethod(), " ", e.GetNamespace(), "/", e.GetSubject(), " ", e.GetActor(), "@",
				e.GetSource())
			if reason := e.GetDetails().GetFields()["reason"].GetStringValue(); reason != "" {
				short += " " + reason
			}
			list = append(list, short)
		}
		token = next
	}
	slices.Reverse(list)
	return list
}

// A command that changes something is recorded once. A rejected command is not recorded. A list can
// be filtered, and entries are deleted after 90 days.
func TestAudit(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: words})
	ctx, ada := t.Context(), process.Actor{Name: "ada", Source: "10.0.0.1"}
	for _, id := range []string{"a", "b", "c"} {
		n.started(t, id)
	}
	began := time.Now().UTC()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err error) {
		t.Helper()
		if err == nil {
			t.Error("the command is not rejected")
		}
	}
	for range 2 { // the second command changes nothing
		_, err := n.SuspendProcess(ctx, key("a"), "tea break", ada)
		must(err)
	}
	for range 2 {
		_, err := n.ResumeProcess(ctx, key("a"), ada)
		must(err)
	}
	repair := engine.RepairParams{Key: key("b"), Simple: true, Actor: ada}
	_, err := n.Repair(ctx, repair)
	refused(err)
	taskError(t, (<-n.calling("b", "fail")).err)
	_, err = n.Repair(ctx, repair)
	must(err)
	grace := time.Duration(0)
	_, err = n.CancelProcess(ctx, engine.CancelParams{Key: key("c"), Reason: "gone", Grace: &grace, Actor: ada})
	must(err)
	_, err = n.CancelProcess(ctx, engine.CancelParams{Key: key("c"), Actor: ada})
	refused(err)
	must(n.RemoveProcess(ctx, key("c"), ada))
	refused(n.RemoveProcess(ctx, key("c"), ada))
	put := &progressorv1.PutProcessRequest{
		Namespace: "ns", ProcessId: "put", Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
	}
	_, err = n.PutProcess(ctx, put, ada)
	must(err)
	_, err = n.PutProcess(ctx, put, ada)
	refused(err)
	for _, paused := range []bool{true, false} {
		_, err = n.SetNamespacePaused(ctx, "ns", paused, ada)
		must(err)
	}
	ns, err := n.GetNamespace(ctx, "ns")
	must(err)
	ns.Namespace = "other"
	_, err = n.PutNamespace(ctx, ns, ada)
	must(err)
	_, err = n.DrainNode(ctx, "99", ada)
	refused(err)
	all := []string{
		"SuspendProcess ns/a ada@10.0.0.1 tea break", "ResumeProcess ns/a ada@10.0.0.1", "Repair ns/b ada@10.0.0.1",
		"CancelProcess ns/c ada@10.0.0.1 gone", "RemoveProcess ns/c ada@10.0.0.1", "PutProcess ns/put ada@10.0.0.1",
		"PauseNamespace ns/ns ada@10.0.0.1", "ResumeNamespace ns/ns ada@10.0.0.1",
		"PutNamespace other/other ada@10.0.0.1",
	}
	for _, tt := range []struct {
		namespace, filter string
		want              []string
	}{
		{"", "", all}, {"ns", "", all[:8]}, {"other", "", all[8:]},
		{"", `method = "RemoveProcess"`, all[4:5]}, {"ns", `actor = "ada" AND subject = "p*"`, all[5:6]},
		{"", `time < "` + began.Add(-time.Minute).Format(time.RFC3339) + `"`, nil},
		{"", `time >= "` + began.Add(-time.Minute).Format(time.RFC3339) + `"`, all},
	} {
		if got := n.audited(t, tt.namespace, tt.filter); !slices.Equal(got, tt.want) {
			t.Errorf("%q, %q:\n%q\nwant\n%q", tt.namespace, tt.filter, got, tt.want)
		}
	}
	var invalid *process.InvalidError
	if _, _, err := n.ListAudit(ctx, &progressorv1.ListAuditRequest{Filter: "who = ada"}); !errors.As(err, &invalid) ||
		invalid.Field != "filter" {
		t.Error(err)
	}
	if _, _, err := n.ListAudit(ctx, &progressorv1.ListAuditRequest{Namespace: "nowhere"}); !errors.Is(err,
		process.ErrNamespaceNotFound) {
		t.Error(err)
	}
	rows := openDB(t, dsn)
	if _, err := rows.Exec(ctx, `UPDATE audit SET time = time - interval '91 days' WHERE audit_id <=
		(SELECT min(audit_id) + 3 FROM audit)`); err != nil {
		t.Fatal(err)
	}
	_, err = n.store.SealAudit(ctx)
	must(err)
	must(n.store.ForgetAudit(ctx))
	if got := rows.count(t, "SELECT count(*) FROM audit"); got >= len(all) || got < len(all)-4 {
		t.Errorf("%d entries are left", got)
	}
	_, err = n.DrainNode(ctx, fmt.Sprint(n.store.NodeID()), ada)
	must(err)
	if got := rows.texts(t, `SELECT method || ' ' || namespace || ' ' || subject FROM audit
		WHERE method = 'DrainNode'`); !slices.Equal(got, []string{fmt.Sprintf("DrainNode  %d", n.store.NodeID())}) {
		t.Errorf("%q", got)
	}
}
