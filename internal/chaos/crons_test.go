//go:build linux

package chaos

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// cronNamespace contains the crons of a chaos run and their runs. The runs use the processor of the
// chain, and no client calls them.
const cronNamespace = "crons"

// triggered is the cron that fires only when it is triggered.
const triggered = "triggered"

// cronKind is a cron of a chaos run, with the expectations of its ledger.
type cronKind struct {
	id        string
	decisions []string // each fire time has one of these
	statuses  []string // each fire ends with one of these
	single    bool     // one run at a time, in order
	change    func(*progressorv1.Cron)
}

var cronKinds = []cronKind{
	{id: "plain-1", decisions: []string{"FIRED"}, statuses: []string{"SUCCESS"}},
	{id: "plain-2", decisions: []string{"FIRED"}, statuses: []string{"SUCCESS"}},
	{id: triggered, decisions: []string{"FIRED"}, statuses: []string{"SUCCESS"}, change: func(c *progressorv1.Cron) {
		c.Spec.Expressions = []string{"@yearly"}
	}},
	{id: "queued", decisions: []string{"FIRED", "QUEUED"}, statuses: []string{"SUCCESS"}, single: true,
		change: func(c *progressorv1.Cron) {
			c.Policy.MaxConcurrency, c.Policy.ConcurrencyPolicy = 1,
				progressorv1.ConcurrencyPolicy_CONCURRENCY_POLICY_QUEUE
		}},
	{id: "replaced", decisions: []string{"FIRED"}, statuses: []string{"CANCELLED"}, change: func(c *progressorv1.Cron) {
		c.Policy.MaxConcurrency, c.Policy.OverlapAction = 1, progressorv1.OverlapAction_OVERLAP_ACTION_CANCEL_PREV
		c.Target.GetStartProcess().Args = []byte(started)
	}},
	{id: "late", decisions: []string{"FIRED"}, statuses: []string{"TIMEOUT"}, change: func(c *progressorv1.Cron) {
		c.Policy.Timeout = durationpb.New(2 * time.Second)
		c.Target.GetStartProcess().Args = []byte(started)
	}},
	{id: "asked", decisions: []string{"FIRED"}, statuses: []string{"SUCCESS"}},
}

// cronWatch records the expected state of the crons of a chaos run, independently of the database.
type cronWatch struct {
	t       testing.TB
	url     string // URL of an HTTP target
	created map[string]time.Time
	stop    func()
	group   sync.WaitGroup

	mutex    sync.Mutex
	asked    map[string]int // requests, by cron and fire time
	tries    int            // number of triggers sent
	triggers map[string]int // triggers that were answered, by fire time
}

// startCrons creates the crons and triggers them.
func startCrons(f *fleet, n *node, c *chain) *cronWatch {
	w := &cronWatch{t: f.t, created: map[string]time.Time{}, asked: map[string]int{}, triggers: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.asked[r.Header.Get("Progressor-Cron-Id")+"/"+r.Header.Get("Progressor-Fire-Time")]++
	}))
	f.t.Cleanup(server.Close)
	w.url = server.URL
	putChain(f.t, n, c, func(ns *progressorv1.Namespace) { ns.Namespace = cronNamespace })
	for _, k := range cronKinds {
		made, err := one(n).Cron.CreateCron(f.t.Context(), &progressorv1.CreateCronRequest{Cron: w.definition(k)})
		if err != nil {
			f.t.Fatalf("cron %s: %v", k.id, err)
		}
		w.created[k.id] = made.GetCron().GetCreatedTime().AsTime()
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	w.stop = cancel
	f.t.Cleanup(cancel)
	w.group.Go(func() { w.trigger(ctx, f) })
	return w
}

func (w *cronWatch) definition(k cronKind) *progressorv1.Cron {
	c := &progressorv1.Cron{
		Namespace: cronNamespace, CronId: k.id, Spec: &progressorv1.CronSpec{Expressions: []string{"* * * * * *"}},
		Policy: &progressorv1.CronPolicy{MaxConcurrency: 3000},
		Target: &progressorv1.CronTarget{
			Target: &progressorv1.CronTarget_StartProcess{
				StartProcess: &progressorv1.StartProcessTarget{Args: []byte(startedToEnd)}}},
	}
	if k.id == "asked" {
		c.Target.Target = &progressorv1.CronTarget_Http{Http: &progressorv1.HttpTarget{Url: w.url}}
	}
	if k.change != nil {
		k.change(c)
	}
	return c
}

// trigger sends each trigger once. A trigger without a response may have fired.
func (w *cronWatch) trigger(ctx context.Context, f *fleet) {
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for try := 0; ; try++ {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.try)
		answer, err := f.at(try).Cron.TriggerCron(limit,
			&progressorv1.TriggerCronRequest{Namespace: cronNamespace, CronId: triggered})
		cancel()
		w.mutex.Lock()
		w.tries++
		if err == nil {
			w.triggers[answer.GetFire().GetFireTime().AsTime().Format(time.RFC3339Nano)]++
		} else if result, hard := verdict(err); result != unknown || hard != nil {
			w.t.Errorf("trigger: %v", err)
		}
		w.mutex.Unlock()
	}
}

// end pauses the crons when they have caught up, and waits until their runs have ended.
func (w *cronWatch) end(l *load, conn *pgx.Conn) {
	w.t.Helper()
	w.stop()
	w.group.Wait()
	now := count(w.t, conn, `SELECT floor(extract(epoch FROM statement_timestamp()))::int`)
	await(w.t, testTimeout, "no cron is behind", func() bool {
		return count(w.t, conn,
			`SELECT count(*) FROM (SELECT cron_id FROM cron_fires WHERE NOT manual GROUP BY cron_id HAVING `+
				`max(fire_time) >= to_timestamp($1)) c`,
			now) == len(cronKinds)-1
	})
	// Wait for these fires before the pause: a paused cron does not start them when its previous
	// run ends.
	if !waitUntil(testTimeout, func() bool {
		return count(w.t, conn, `SELECT count(*) FROM cron_fires WHERE status = 'SCHEDULED'`) == 0
	}) {
		w.t.Fatalf("fires wait for previous runs: %s", w.openRuns(conn))
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), testTimeout)
	defer cancel()
	for i, k := range cronKinds {
		_, err := l.sendCommand(ctx, i, func(ctx context.Context, c *client.Client) error {
			_, err := c.Cron.PauseCron(ctx, &progressorv1.PauseCronRequest{Namespace: cronNamespace, CronId: k.id})
			return err
		})
		if err != nil {
			w.t.Errorf("pause %s: %v", k.id, err)
		}
	}
	var last string
	const newest = `SELECT coalesce(max(process_id), '') ` +
		`FROM cron_fires WHERE cron_id = 'replaced' AND status = 'RUNNING'`
	if err := conn.QueryRow(ctx, newest).Scan(&last); err != nil {
		w.t.Fatal(err)
	}
	_, err := l.sendCommand(ctx, 0, func(ctx context.Context, c *client.Client) error { // no other run replaces it
		_, err := c.Process.CancelProcess(ctx,
			&progressorv1.CancelProcessRequest{Namespace: cronNamespace, ProcessId: last, Reason: "the end"})
		return err
	})
	if err != nil && connect.CodeOf(err) != connect.CodeFailedPrecondition {
		w.t.Errorf("cancel the last run of replaced, %q: %v", last, err)
	}
	ended := func() bool { return count(w.t, conn, `SELECT count(*) FROM cron_fires WHERE ended_time IS NULL`) == 0 }
	if waitUntil(testTimeout/3, ended) {
		return
	}
	w.t.Logf("runs of crons are slow to end: %s", w.openRuns(conn))
	if !waitUntil(testTimeout-testTimeout/3, ended) {
		w.t.Fatalf("runs of crons that have not ended: %s", w.openRuns(conn))
	}
}

// openRuns lists the fires that have not ended, with the state of their runs and crons.
func (w *cronWatch) openRuns(conn *pgx.Conn) (list string) {
	w.t.Helper()
	err := conn.QueryRow(w.t.Context(),
		`SELECT coalesce(string_agg(format(E'\n%s of %s, its run is %s since %s; its cron is %s, '
				|| 'with %s tasks to come and state %s',
			f.status, f.process_id, coalesce(p.status::text, 'not there'), p.status_changed_time, c.status,
			(SELECT count(*) FROM schedule s WHERE s.namespace = c.namespace AND s.process_id = c.process_id),
			encode(substring(c.aux_state FOR position('\x0a'::bytea IN c.aux_state)), 'escape')), ''), '')
		FROM cron_fires f JOIN processes c ON c.namespace = f.namespace AND c.process_id = '~cron/' || f.cron_id
		LEFT JOIN processes p ON p.namespace = f.namespace AND p.process_id = f.process_id
		  WHERE f.ended_time IS NULL`).Scan(&list)
	if err != nil {
		w.t.Error(err)
	}
	return list
}

// fireRow is a row of the ledger, with the run that it names.
type fireRow struct {
	cron, decision, status, process string
	fire, started, ended            time.Time
	manual                          bool
	attempt                         int
}

// cronRun is a process that is a run.
type cronRun struct {
	status         string
	operations     []string // its events
	created, ended time.Time
}

func (w *cronWatch) rows(conn *pgx.Conn) (rows []fireRow) {
	w.t.Helper()
	found, err := conn.Query(w.t.Context(),
		`SELECT cron_id, decision::text, status::text, coalesce(process_id, ''), fire_time,
		  coalesce(started_time, 'epoch'),
		coalesce(ended_time, 'epoch'), manual, attempt FROM cron_fires WHERE namespace = $1
		  ORDER BY cron_id, fire_time`, cronNamespace)
	if err != nil {
		w.t.Fatal(err)
	}
	var r fireRow
	_, err = pgx.ForEachRow(found,
		[]any{&r.cron, &r.decision, &r.status, &r.process, &r.fire, &r.started, &r.ended, &r.manual, &r.attempt},
		func() error {
			r.fire = r.fire.UTC()
			rows = append(rows, r)
			return nil
		})
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

func (w *cronWatch) runs(conn *pgx.Conn) map[string]cronRun {
	w.t.Helper()
	found, err := conn.Query(w.t.Context(), `SELECT p.process_id, p.status::text, p.created_time, p.status_changed_time,
		ARRAY(SELECT convert_from(e.payload, 'UTF8') FROM events e WHERE e.namespace = p.namespace
		  AND e.process_id = p.process_id ORDER BY e.event_id)
		FROM processes p WHERE p.namespace = $1 AND p.process_id NOT LIKE '~cron/%'`, cronNamespace)
	if err != nil {
		w.t.Fatal(err)
	}
	runs := map[string]cronRun{}
	var id string
	var r cronRun
	_, err = pgx.ForEachRow(found, []any{&id, &r.status, &r.created, &r.ended, &r.operations}, func() error {
		runs[id] = r
		r.operations = nil
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return runs
}
