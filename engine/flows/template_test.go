package flows_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestListTemplates checks that templates are ordered by type, page by page.
func TestListTemplates(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	for _, name := range []string{"b", "a", "c", "a"} {
		n.put(t, "ns", fmt.Sprintf(`{"type": %q, "description": %q, "steps": [{"step_id": "s", "job": {}}]}`, name,
			time.Now()))
	}
	got := ""
	for q := (&progressorv1.ListTemplatesRequest{Namespace: "ns", PageSize: 2}); ; {
		page, next, err := n.ListTemplates(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page {
			got += fmt.Sprintf("%s %d, ", m.GetType(), m.GetVersion())
		}
		if q.PageToken = next; next == "" {
			break
		}
	}
	same(t, got, "a 2, b 1, c 1, ")
	_, _, err := n.ListTemplates(t.Context(), &progressorv1.ListTemplatesRequest{Namespace: "ns", PageToken: "%"})
	refusedField(t, err, "page_token", "must be the next_page_token")
}

// TestRunsOfDeletedTemplates checks that an ended run can still be read after its template was
// deleted, and after another template was stored under the same type.
func TestRunsOfDeletedTemplates(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "gone", "steps": [{"step_id": "a", "job": {}}]}`)
	n.run(t, "ns", "gone", "r", "")
	n.ended(t, "ns", "r")
	if err := n.DeleteTemplate(t.Context(), "ns", "gone"); err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		if again {
			n.put(t, "ns", `{"type": "gone", "steps": [{"step_id": "x", "job": {}}, {"step_id": "y", "job": {}}]}`)
		}
		other := start(t, n.DB.Config().ConnString()) // it has not read any template
		for _, node := range []*node{n, other} {
			r, err := node.Get(t.Context(), "ns", "r", 0)
			if err != nil {
				t.Fatal(err)
			}
			same(t, runSummary(r), "SUCCEEDED: a SUCCEEDED")
			list := node.list(t, "ns", "", "")
			if len(list) != 1 || list[0].GetProgress().GetPercent() != 100 || list[0].GetStatus() != r.GetStatus() {
				t.Errorf("%v", list)
			}
		}
	}
}

// TestTemplatesAreAudited checks that the audit records who stored, disabled, enabled or deleted a
// template. It must not record requests that change nothing.
func TestTemplatesAreAudited(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	put := func(steps string) {
		t.Helper()
		m := &progressorv1.Template{}
		if err := protojson.Unmarshal([]byte(`{"namespace": "ns", "type": "x", "steps": [`+steps+`]}`), m); err != nil {
			t.Fatal(err)
		}
		if _, err := n.PutTemplate(t.Context(), &progressorv1.PutTemplateRequest{Template: m}, kim); err != nil {
			t.Fatal(err)
		}
	}
	const a, b = `{"step_id": "a", "job": {}}`, `{"step_id": "b", "job": {}}`
	put(a)
	put(a)
	put(a + "," + b)
	for _, on := range []bool{false, true} {
		if _, err := n.EnableTemplate(t.Context(), "ns", "x", on, kim); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []error{nil, process.ErrTemplateNotFound} {
		if err := n.DeleteTemplate(t.Context(), "ns", "x", kim); !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	var noted string
	if err := n.DB.QueryRow(t.Context(),
		`SELECT string_agg(method, ' ' ORDER BY audit_id) FROM audit WHERE actor = 'kim' AND namespace = 'ns'
			AND subject = 'x'`).Scan(&noted); err != nil {
		t.Fatal(err)
	}
	same(t, noted, "PutTemplate PutTemplate DisableTemplate EnableTemplate DeleteTemplate")
}
