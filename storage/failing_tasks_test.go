package storage_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/insight"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// ListFailingTasks lists the tasks of runs, crons and bulks whose attempts have failed for at least
// a minute. It lists waiting and running tasks, but no tasks that wait for an operator, and none in
// paused namespaces.
func TestListFailingTasks(t *testing.T) {
	t.Parallel()
	b := newBench(t, storagetest.WithoutInvariants())
	b.exec(`INSERT INTO namespaces (namespace, config, paused) VALUES ('shop', '{}', false), ('paused', '{}', true)`)
	waits := func(namespace, id, waitsFor string, attempt int) {
		b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, attempt)
			VALUES ($1, $2, 7, 'NOTIFY', $3::text::waits_for, now(), $4)`, namespace, id, waitsFor, attempt)
	}
	waits("shop", "~flow/late", "time", 3)
	waits("shop", "~cron/late", "place", 3)
	waits("shop", "~cron/new", "time", 0)
	waits("shop", "~bulk/recent", "time", 1)
	waits("shop", "~flow/suspended", "operator", 3)
	waits("shop", "~job/late", "time", 3)
	waits("shop", "late", "time", 3)
	waits("paused", "~flow/late", "time", 3)
	b.exec(`INSERT INTO running (namespace, process_id, task_id, task_type, attempt, fencing_token, node_id, deadline,
		scheduled_time, running_time)
		VALUES ('shop', '~bulk/runs', 7, 'TIMEOUT', 4, 1, 1, now(), now(), now())`)
	b.exec(`INSERT INTO failed_attempts (namespace, process_id, task_id, attempt, reason, message, node_id,
		running_time, failed_time, first_scheduled_time)
		SELECT namespace, process_id, 7, n, 'broken', 'attempt ' || n, 1, now(), now() - CASE
		  WHEN process_id LIKE '%recent' THEN 10 ELSE 100 - n END * interval '1 s', now()
		FROM (SELECT namespace, process_id, attempt FROM schedule WHERE attempt > 0 UNION ALL
		  SELECT namespace, process_id, 3 FROM running) t, generate_series(1, t.attempt) n`)
	list := func(limit int) (texts []string) {
		tasks, err := insight.ListFailingTasks(t.Context(), b.db, time.Minute, limit)
		for _, f := range must(t, tasks, err) {
			if f.TaskID != 7 || f.Reason != "broken" || f.Message != "attempt 3" || f.Attempt != 3 ||
				f.For.Round(10*time.Second) != 100*time.Second {
				t.Errorf("%+v", f)
			}
			texts = append(texts, f.Key.Namespace+" "+f.Key.ProcessID+" "+string(f.Type))
		}
		slices.Sort(texts)
		return texts
	}
	equal(t, "the list", list(10), "[shop ~bulk/runs TIMEOUT shop ~cron/late NOTIFY shop ~flow/late NOTIFY]")
	equal(t, "the number with a limit", len(list(2)), 2)
}

// The scan of ListFailingTasks reads an index that contains only retries of internal kinds.
func TestListFailingTasksPlan(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	statement, _ := recorded(func(db dbsqlc.DBTX) error {
		_, err := insight.ListFailingTasks(context.Background(), db, 0, 0)
		return err
	})
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name)
		SELECT 'shop', '~cron/' || n, n, 'TIMEOUT', 'time', now(), '' FROM generate_series(1, 10000) n`)
	b.exec("ANALYZE schedule")
	plan := fmt.Sprint(explain(t, b.connect(storage.HotConfig), statement))
	if !strings.Contains(plan, "schedule_internal_retries") {
		t.Error(plan)
	}
	b.exec("DELETE FROM schedule")
}
