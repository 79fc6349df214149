package engine_test

import (
	"context"
	"sync"
	"testing"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Timers fire in every namespace although 300 are due in each of 1,000 namespaces.
func TestTimersFireInManyNamespaces(t *testing.T) {
	t.Parallel()
	const namespaces = 1000
	var mu sync.Mutex
	fired := map[string]bool{}
	dsn := storagetest.DSN(t)
	start(t, dsn, by{timeoutTask: func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		mu.Lock()
		fired[r.GetProcess().GetNamespace()] = true
		mu.Unlock()
		return processor.Echo().Process(ctx, r)
	}})
	d := look(t, dsn)
	for _, sql := range []string{
		`INSERT INTO processes (namespace, process_id, status, previous_status)
		 SELECT 'many' || s, 'p' || p, 'RUNNING', 'INIT' FROM generate_series(1, $1::int) s, generate_series(1, 300) p`,
		`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name)
		 SELECT 'many' || s, 'p' || p, nextval('task_ids'), 'TIMEOUT', 'time', now(), ''
		   FROM generate_series(1, $1::int) s, generate_series(1, 300) p`,
		`INSERT INTO namespaces (namespace, config)
		 SELECT 'many' || s, config FROM namespaces, generate_series(1, $1::int) s WHERE namespace = 'ns'`,
	} {
		if _, err := d.Exec(t.Context(), sql, namespaces); err != nil {
			t.Fatal(err)
		}
	}
	storagetest.Recount(t, d)
	eventually(t, "a timer fires in every namespace", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(fired) == namespaces
	})
}
