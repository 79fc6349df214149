package storage_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// TestGeneralPlans checks the plans of general connections if nearly all waiting tasks belong to
// one process. The planner then expects as many tasks of each process, so that reading all of the
// table seems cheap.
func TestGeneralPlans(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := b.connect(storage.GeneralConfig)
	q := dbsqlc.New()
	b.exec(`INSERT INTO processes (namespace, process_id, status, previous_status)
		SELECT 'shop', 'p' || n, 'RUNNING', 'INIT' FROM generate_series(1, 3) n`)
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time)
		SELECT 'shop', 'p1', nextval('task_ids'), 'NOTIFY',
		       CASE n WHEN 1 THEN 'place' ELSE 'process' END::waits_for, now()
		  FROM generate_series(1, 100000) n`)
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name)
		SELECT 'shop', 'p2', nextval('task_ids'), 'TIMEOUT', 'time', now(), ''`)
	b.exec("ANALYZE")
	if _, err := conn.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan"); err != nil {
		t.Fatal(err)
	}
	for name, sql := range map[string]string{
		"GetTimers":    querySQL(q.GetTimers),
		"GetJobs":      querySQL(q.GetJobs),
		"GetTask":      querySQL(q.GetTask),
		"ResumeTasks":  querySQL(q.ResumeTasks),
		"SettleQueues": querySQL(q.SettleQueues),
		"TraceTasks":   querySQL(q.TraceTasks),
	} {
		plan := explain(t, conn, sql)
		faults := slices.DeleteFunc(plan.faults(name), func(fault string) bool {
			return name == "ResumeTasks" && strings.HasPrefix(fault, "joins every row") // one row each
		})
		if len(faults) > 0 {
			t.Errorf("%s: %s", name, strings.Join(slices.Compact(faults), "; "))
		}
		for _, node := range plan.nodes() {
			if node.Type == "Gather" || node.Type == "Bitmap Heap Scan" {
				t.Errorf("%s: the plan contains a %s", name, node.Type)
			}
		}
		usesTimers := func(node planNode) bool { return node.Index == "schedule_timers" }
		if name == "GetTimers" && !slices.ContainsFunc(plan.nodes(), usesTimers) {
			t.Error("GetTimers reads all waiting tasks of the process")
		}
	}
	b.recount()
}

// nodes returns all nodes of a plan.
func (n planNode) nodes() []planNode {
	nodes := []planNode{n}
	for _, child := range n.Plans {
		nodes = append(nodes, child.nodes()...)
	}
	return nodes
}
