package engine_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// pagesOf reads all pages of a list and returns the names of their rows. It checks that each page
// has at most 9 MiB.
func pagesOf[M proto.Message](
	t *testing.T, what string, name func(M) string, read func(token string) ([]M, string, error),
) (names []string) {
	t.Helper()
	for token, more := "", true; more; more = token != "" {
		page, next, err := read(token)
		if err != nil || len(page) == 0 {
			t.Fatalf("%s: a page of %d rows, %v", what, len(page), err)
		}
		size := 0
		for _, m := range page {
			size += proto.Size(m)
			names = append(names, name(m))
		}
		if size > 9<<20 {
			t.Errorf("%s: a page of %d rows has %d bytes", what, len(page), size)
		}
		token = next
	}
	return names
}

// TestOperatorReadsAreBounded checks that the responses for operators have at most about 8 MiB,
// regardless of the size of their rows, and that the pages together are complete.
func TestOperatorReadsAreBounded(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: words})
	db := storagetest.Connect(t, dsn)
	complete := func(what string, got []string, want int) {
		t.Helper()
		slices.Sort(got)
		if all := len(slices.Compact(got)); len(got) != want || all != want {
			t.Errorf("%s: %d rows, %d of them different, want %d", what, len(got), all, want)
		}
	}

	storagetest.Exec(t, db, `INSERT INTO audit (time, actor, source, method, namespace, subject, details)
		SELECT now(), 'ada', '10.0.0.1', 'StartBulk', 'ns', 's' || k, jsonb_build_object('filter', repeat('x', 20000))
		FROM generate_series(1, 1000) k`)
	complete("audit", pagesOf(t, "audit", (*progressorv1.AuditEntry).GetSubject,
		func(token string) ([]*progressorv1.AuditEntry, string, error) {
			return n.ListAudit(t.Context(), &progressorv1.ListAuditRequest{
				Namespace: "ns", Filter: `subject = "s*"`, PageSize: 1000, PageToken: token,
			})
		}), 1000)

	storagetest.Exec(t, db, `INSERT INTO workers (namespace, worker_id, last_seen_time) SELECT 'ns', 'w' || w, now()
		FROM generate_series(1, 100) w
		UNION ALL SELECT rpad('n' || k || '-', 128, 'x'), 'w' || w, now()
		FROM generate_series(1, 1100) k, generate_series(1, 100) w`)
	complete("workers", pagesOf(t, "workers", (*progressorv1.Worker).GetWorkerId,
		func(token string) ([]*progressorv1.Worker, string, error) {
			list, next, err := n.ListWorkers(t.Context(), &progressorv1.ListWorkersRequest{
				Namespace: "ns", PageSize: 1000, PageToken: token,
			})
			if err == nil && len(list[0].GetNamespaces()) != 1000 {
				t.Errorf("a worker has %d namespaces", len(list[0].GetNamespaces()))
			}
			return list, next, err
		}), 100)
	storagetest.Exec(t, db, "DELETE FROM workers")

	storagetest.Exec(t, db, `INSERT INTO namespaces (namespace, config)
		SELECT 'large-' || k, jsonb_build_object('processor', '{"pull": {}}'::jsonb,
		'retryPolicy', jsonb_build_object('nonRetryableErrors', jsonb_build_array(repeat('x', 120000))))
		FROM generate_series(1, 150) k`)
	complete("namespaces", pagesOf(t, "namespaces", (*progressorv1.Namespace).GetNamespace,
		func(token string) ([]*progressorv1.Namespace, string, error) {
			return n.ListNamespaces(t.Context(), &progressorv1.ListNamespacesRequest{PageToken: token})
		}), 151)
	complete("namespaces by seven",
		pagesOf(t, "namespaces", (*progressorv1.Namespace).GetNamespace,
			func(token string) ([]*progressorv1.Namespace, string, error) {
				return n.ListNamespaces(t.Context(), &progressorv1.ListNamespacesRequest{PageSize: 7, PageToken: token})
			}), 151)
	_, _, err := n.ListNamespaces(t.Context(), &progressorv1.ListNamespacesRequest{PageToken: "?"})
	if err == nil || !strings.Contains(err.Error(), "page_token") {
		t.Errorf("a wrong token: %v", err)
	}
}

// TestFailuresInReadsAreBounded checks that the error groups and the explanation of a process
// contain only the beginnings of failures.
func TestFailuresInReadsAreBounded(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: words})
	db := storagetest.Connect(t, dsn)
	n.started(t, "p")
	n.called(t, "p", "name a 1h")
	storagetest.Exec(t, db,
		`UPDATE schedule SET attempt = 1, retry_interval = '1 h', failure = jsonb_build_object('reason',
		repeat('r', 20000), 'message', repeat('m', 20000))`)
	storagetest.Exec(t, db,
		`INSERT INTO processes (namespace, process_id, status, attention, attention_time, corrupted_by, detail)
		SELECT 'ns', 'broken' || k, 'ERROR', 'ERROR', now(), 1000000 + k, 'x' FROM generate_series(1, 500) k`)
	storagetest.Exec(t, db,
		`INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, fencing_token, scheduled_time,
		running_time, finished_time, failure)
		SELECT 'ns', 'broken' || k, 1000000 + k, 'CALL', 'ERROR', 1, nextval('fencing_tokens'), now(), now(), now(),
		       jsonb_build_object('reason', repeat('r', 20000), 'message',
		         translate(k::text, '0123456789', 'abcdefghij') || repeat('m', 20000))
		       FROM generate_series(1, 500) k`)
	groups, _, err := n.ListErrors(t.Context(), "ns", 1000, "")
	size := 0
	for _, g := range groups {
		size += proto.Size(g)
	}
	if err != nil || len(groups) != 500 || size > 1<<20 {
		t.Errorf("%d groups of %d bytes, %v", len(groups), size, err)
	}
	explained, err := n.ExplainProcess(t.Context(), key("p"))
	said := explained.GetWaitsForDetail()
	if size := proto.Size(explained); err != nil || !strings.Contains(said, "failed in attempt 1") ||
		!strings.Contains(said, "mmm") || size > 5000 {
		t.Errorf("%d bytes: %.200s, %v", size, said, err)
	}
	storagetest.Exec(t, db, "UPDATE schedule SET attempt = 0, retry_interval = NULL, failure = NULL")
	storagetest.Exec(t, db, "DELETE FROM tasks WHERE task_id > 1000000")
	storagetest.Exec(t, db, "DELETE FROM processes WHERE process_id LIKE 'broken%'")
}
