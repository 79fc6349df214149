//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/internal/pgembed"
)

// chaosRun is a run of TestChaos: three engines, each behind its own proxy, one PostgreSQL, and
// many clients.
type chaosRun struct {
	t       testing.TB
	seed    uint64
	random  *rand.Rand
	server  *pgembed.Server
	dsn     string
	chain   *chain
	fleet   *fleet
	load    *load
	crons   *cronWatch
	jobs    *jobWatch
	events  *eventWatch
	flows   *flowWatch
	trips   *tripWatch
	sinks   *sinkWatch
	nodes   []*node
	proxies []*proxy
	started int
	tenants *tenants
	// snapshot is a connection that keeps an old snapshot open.
	snapshot *pgx.Conn

	freezes  int // how often an engine cancelled its attempts before it was declared dead
	repeated int // tasks with two live attempts while an engine was frozen
	moved    int // attempts whose times a clock step changed
	locked   int // rows that another client has locked

	fired    map[string]int
	recovery map[string]time.Duration // longest time until calls were answered again, by fault
	counters map[string]float64       // counters of engines that have ended
}

// counted lists the recoveries that must happen in a long run, and the metrics that count them.
var counted = []struct{ what, metric string }{
	{"tasks of dead engines taken over", "progressor_zombies_total"},
	{"tasks adopted after the response to a commit was lost", "progressor_tasks_adopted_total"},
	{"results rejected because of an old token", "progressor_stale_results_total"},
	{"flushes recovered after a broken connection", "progressor_flush_recoveries_total"},
	{"attempts cancelled by an engine that was frozen or cut off", "progressor_attempts_fenced_total"},
	{"items that did not wait for a locked row", "progressor_flush_contended_total"},
	{"messages held for a suspended process",
		`progressor_messages_total{kind="notify",namespace="chain",outcome="held"}`},
}

type fault struct {
	name   string
	inject func(*chaosRun, int) // the argument is the number of an engine
}

// faults are the faults of a chaos run. A fault is over when its function returns, except for an
// old snapshot and a backlog.
var faults = []fault{
	{"kill an engine", (*chaosRun).kill},
	{"kill an engine that is cut off", (*chaosRun).killDisconnected},
	{"stop an engine past its lease", (*chaosRun).stop},
	{"freeze an engine for less than its lease", (*chaosRun).freeze},
	{"freeze an engine whose processor continues", (*chaosRun).freezeLong},
	{"set the clock of PostgreSQL forward", (*chaosRun).clockForward},
	{"set the clock of PostgreSQL back", (*chaosRun).clockBackward},
	{"restart an engine", (*chaosRun).restartEngine},
	{"crash PostgreSQL", (*chaosRun).crash},
	{"terminate backends", (*chaosRun).terminate},
	{"lose responses of PostgreSQL", (*chaosRun).loseResponses},
	{"stall an engine's connections", (*chaosRun).stallConnections},
	{"cut an engine's connections", func(s *chaosRun, i int) { s.proxies[i].Cut() }},
	{"keep an old snapshot open", (*chaosRun).holdSnapshot},
	{"lock rows from another client", (*chaosRun).lockRows},
	{"end a process with a long queue", (*chaosRun).endLongQueue},
	{"add a backlog to many namespaces", (*chaosRun).addBacklog},
	{"slow down the processor", (*chaosRun).slowProcessor},
	{"make the processor unreachable", (*chaosRun).refuseCalls},
	{"break Kafka", (*chaosRun).breakKafka},
	{"break the webhook", (*chaosRun).breakWebhook},
}

// fullRound is the shortest -chaos.duration with which a run injects each fault. Such a run may
// take longer than its duration.
const fullRound = time.Minute

// isFullRound reports whether the run injects each fault.
func isFullRound() bool { return *chaosDuration >= fullRound && *chaosFault == "" }

func TestChaos(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d, %s", seed, *chaosDuration)
	chosen := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return !strings.Contains(f.name, *chaosFault)
	})
	if len(chosen) == 0 {
		t.Fatalf("-chaos.fault: no name of a fault contains %q", *chaosFault)
	}
	s := newChaosRun(t, seed)
	began := time.Now()
	end := began.Add(*chaosDuration)
	var remaining []int // the faults of this round
	all := func() bool { return !isFullRound() || len(s.fired) == len(faults) }
	for (time.Now().Before(end) || !all()) && !t.Failed() {
		if len(remaining) == 0 {
			remaining = s.random.Perm(len(chosen))
		}
		f := chosen[remaining[0]]
		remaining = remaining[1:]
		t.Logf("%6.1f s, %d answered: %s", time.Since(began).Seconds(), s.load.acked.Load(), f.name)
		f.inject(s, s.random.IntN(len(s.nodes)))
		s.fired[f.name]++
		before := s.load.acked.Load()
		took := await(t, testTimeout, "calls are answered after: "+f.name, func() bool {
			return s.load.acked.Load() >= before+50
		})
		s.recovery[f.name] = max(s.recovery[f.name], took)
	}
	s.finish()
}

func newChaosRun(t testing.TB, seed uint64) *chaosRun {
	s := &chaosRun{
		t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), server: durable.get(t),
		fired: map[string]int{}, recovery: map[string]time.Duration{}, counters: map[string]float64{},
	}
	s.dsn = database(t, s.server)
	s.chain = newChain(t)
	for i := range 3 {
		s.proxies = append(s.proxies, newProxy(t, s.dsn))
		s.nodes = append(s.nodes, nil)
		s.startEngine(i)
	}
	putChain(t, s.nodes[0], s.chain, record)
	s.tenants = &tenants{}
	s.putTenants()
	s.fleet = newFleet(t, s.nodes...)
	s.sinks = startSinks(s.fleet)
	s.fleet.start(50)
	s.crons = startCrons(s.fleet, s.nodes[0], s.chain)
	putJobNamespace(s.t, s.nodes[0])
	s.events = startEventWatch(s.fleet)
	s.jobs = startJobs(s.fleet, seed)
	s.flows = startFlows(s.fleet, s.nodes[0], s.jobs)
	s.trips = startTrips(s.fleet, s.nodes[0], s.jobs, s.proxies[0].DSN)
	s.load = startLoad(s.fleet, plan{clients: 48, processes: 50, seed: seed, vary: vary, command: randomCommands(50),
		held: s.chain.heldTime})
	return s
}

// vary changes an operation to one of a random kind. If a process fails, messages from other
// processes are cancelled, and so are operations whose clients do not wait for the end. So
// processes with an even number never fail.
func vary(e *entry, number int, random *rand.Rand) {
	switch kind := random.IntN(100); {
	case kind < 10:
		e.op += fmt.Sprintf("%s%dms", askTimer, random.IntN(1000))
	case kind < 13:
		e.op += askReject
	case kind < 23 && number%2 == 0:
		e.notify = true
	case kind < 15:
		e.op += askFail
	case kind < 28:
		e.everywhere = true
	case kind < 40:
		e.unkeyed = true
	case kind < 50:
		e.op += askNotify + processID(2*random.IntN(25))
	case kind < 52 && number%2 == 0:
		e.op += askStartEnding + "child-" + e.op
	}
}

// startEngine starts engine i. No engine i may be running.
func (s *chaosRun) startEngine(i int) {
	s.started++
	s.nodes[i] = startNode(s.t, fmt.Sprintf("engine-%d-%d", i, s.started), s.proxies[i].DSN)
	if s.fleet != nil {
		s.fleet.replace(i, s.nodes[i])
	}
}

// addCounters adds the counters of an engine that is about to end. It scrapes the engine only once,
// because the processor holds the calls of the engine during the scrape. A scrape may wait for the
// database.
func (s *chaosRun) addCounters(n *node) {
	_, scrape := n.get("/metrics")
	for _, c := range counted {
		s.counters[c.metric] += sumOf(scrape, c.metric)
	}
}

// awaitBusy holds the processor until it works on two calls of an engine. It gives up after two
// seconds, because all clients may be waiting for other engines.
func (s *chaosRun) awaitBusy(i int) {
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	s.chain.hold(nil)
	waitUntil(2*time.Second, func() bool { return s.chain.working(chainCalls(s.t, conn, s.nodes[i])) >= 2 })
}

// chainCalls returns the tasks of the chain that an engine runs.
func chainCalls(t testing.TB, conn *pgx.Conn, n *node) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT r.task_id::text FROM running AS r JOIN nodes AS n USING (node_id)
		WHERE n.address = $1 AND r.namespace = $2`, n.name, namespace)
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

// waitUntil waits at most limit for a condition, and reports whether it was met.
func waitUntil(limit time.Duration, met func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !met() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
	return true
}

// kill ends an engine while it runs calls. If possible, it does so after a step of a run has ended
// and before an engine has stored the next step.
func (s *chaosRun) kill(i int) {
	s.awaitBusy(i)
	s.addCounters(s.nodes[i])
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	release := s.flows.holdEnd(conn)
	s.nodes[i].kill()
	release()
	s.chain.openAll()
	s.startEngine(i)
}

// killDisconnected kills an engine that has lost its connection to PostgreSQL. Everything that the
// engine has acknowledged must be stored.
func (s *chaosRun) killDisconnected(i int) {
	s.awaitBusy(i)
	s.addCounters(s.nodes[i])
	s.proxies[i].stall()
	s.chain.openAll()
	waitUntil(200*time.Millisecond, func() bool { return !s.nodes[i].isReady() }) // time for the processor to answer
	s.nodes[i].kill()
	s.proxies[i].pass()
	s.startEngine(i)
}

func (s *chaosRun) stop(i int) {
	s.awaitBusy(i)
	n := s.nodes[i]
	n.signal(syscall.SIGSTOP)
	s.chain.openAll()
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	await(s.t, testTimeout, "the others have taken over", func() bool {
		return len(chainCalls(s.t, conn, n)) == 0 && silent(s.t, conn, n, "1.2 s")
	})
	n.signal(syscall.SIGCONT)
	await(s.t, testTimeout, "the engine is ready again", n.isReady)
}

func (s *chaosRun) restartEngine(i int) {
	n := s.nodes[i]
	s.awaitBusy(i)
	s.addCounters(n)
	n.signal(syscall.SIGTERM)
	await(s.t, testTimeout, "the engine drains", func() bool { return n.log.has(`"msg":"draining"`) })
	s.chain.openAll()
	if code := n.exit(); code != 0 {
		s.t.Errorf("engine %s ended with code %d", n.name, code)
	}
	s.startEngine(i)
}

func (s *chaosRun) crash(int) {
	crash(s.t, s.server)
	if s.random.IntN(2) == 0 {
		await(s.t, testTimeout, "the engines know that they are cut off", func() bool {
			return !slices.ContainsFunc(s.nodes, (*node).isReady)
		})
	}
	restart(s.t, s.server)
	await(s.t, testTimeout, "the engines are ready again", func() bool {
		return !slices.ContainsFunc(s.nodes, func(n *node) bool { return !n.isReady() })
	})
}

func (s *chaosRun) terminate(int) {
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	terminateBackends(s.t, conn)
}

// holdSnapshot opens a snapshot and keeps it open until the next call of holdSnapshot. PostgreSQL
// cannot vacuum rows that are deleted in this time.
func (s *chaosRun) holdSnapshot(int) {
	if s.snapshot != nil {
		s.snapshot.Close(s.t.Context())
	}
	s.snapshot = observe(s.t, s.dsn)
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM running"} {
		if _, err := s.snapshot.Exec(s.t.Context(), sql); err != nil {
			s.t.Fatal(err)
		}
	}
}

// lockRows locks running processes and tasks, as another client would, until other processes make
// progress.
func (s *chaosRun) lockRows(int) {
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	for _, sql := range []string{
		"BEGIN",
		`SELECT FROM progressor.processes WHERE (namespace, process_id) IN (
			SELECT namespace, process_id FROM progressor.running LIMIT 5) FOR UPDATE SKIP LOCKED`,
		"SELECT FROM progressor.running LIMIT 2 FOR UPDATE SKIP LOCKED",
	} {
		tag, err := conn.Exec(s.t.Context(), sql)
		if err != nil {
			s.t.Fatal(err)
		}
		s.locked += int(tag.RowsAffected())
	}
	before := s.load.acked.Load()
	waitUntil(2*time.Second, func() bool { return s.load.acked.Load() > before+500 })
}

func (s *chaosRun) loseResponses(i int) {
	p := s.proxies[i]
	before := p.lost.Load()
	p.loseAnswers()
	waitUntil(2*time.Second, func() bool { return p.lost.Load() >= before+5 })
	p.pass()
}

func (s *chaosRun) stallConnections(i int) {
	s.proxies[i].stall()
	await(s.t, testTimeout, "the engine knows that it is cut off", func() bool { return !s.nodes[i].isReady() })
	s.proxies[i].pass()
	await(s.t, testTimeout, "the engine is ready again", s.nodes[i].isReady)
}

func (s *chaosRun) slowProcessor(int) {
	g := s.chain.hold(nil)
	waitUntil(2*time.Second, func() bool { return g.arrived.Load() >= 30 })
	s.chain.openAll()
}

func (s *chaosRun) refuseCalls(int) {
	before := s.chain.refused.Load()
	s.chain.refuse(30)
	waitUntil(5*time.Second, func() bool { return s.chain.refused.Load() >= before+30 })
	s.chain.refuse(0)
}

// finish stops the load, waits until all work is done, and compares the results.
func (s *chaosRun) finish() {
	s.chain.openAll()
	s.flows.stop()
	s.trips.stop()
	entries := s.load.finish()
	conn := observe(s.t, s.dsn)
	await(s.t, testTimeout, "no process is suspended", func() bool { return s.resumeAll(conn) == 0 })
	await(s.t, testTimeout+time.Minute, "leases from before a backward step of the clock have begun again",
		func() bool {
			return count(s.t, conn, `SELECT count(*) FROM leases
			WHERE expires_time > statement_timestamp() + interval '1 minute'`) == 0
		})
	s.crons.end(s.load, conn)
	runs := s.flows.end(conn)
	trips := s.trips.end(conn)
	jobs := s.jobs.end(conn)
	events := s.events.end(conn)
	others := s.settleTenants(conn)
	entries = slices.Concat(entries, s.sinks.end(s.seed))
	settle(s.t, s.dsn)
	for _, n := range s.nodes {
		s.addCounters(n)
	}
	histories := verify(s.t, s.dsn, entries)
	messages, wrongMessages := delivered(histories, childStatuses(s.t, conn), s.load.commands.cancelled)
	rejected, wrongCalls := callsWhileSuspended(s.load.commands.windows, entries)
	fires, wrongFires := s.crons.ledger(s.crons.rows(conn), s.crons.runs(conn))
	for _, w := range slices.Concat(wrongMessages, wrongCalls, wrongFires, s.jobs.defects(jobs),
		s.events.defects(events), s.flows.defects(runs), s.trips.defects(trips),
		s.tenants.defects(others), s.sinks.defects(conn)) {
		s.t.Error(w)
	}
	replay(s.t, s.fleet, entries)
	s.report(conn, entries, slices.Concat(
		s.figures(conn, messages, rejected, fires), s.jobs.figures(jobs), s.events.figures(), s.flows.figures(runs),
		s.trips.figures(trips),
		s.tenants.figures(), s.sinks.figures()))
}

// resumeAll resumes all suspended processes and returns their number. An engine that was
// disconnected may execute an old suspension late.
func (s *chaosRun) resumeAll(conn *pgx.Conn) int {
	rows, err := conn.Query(s.t.Context(), `SELECT process_id FROM processes WHERE status = 'SUSPENDED'`)
	if err != nil {
		s.t.Fatal(err)
	}
	suspended, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.t.Fatal(err)
	}
	for _, process := range suspended {
		ctx, cancel := context.WithTimeout(s.t.Context(), testTimeout)
		_, err := s.load.resume(ctx, process, 0)
		cancel()
		if err != nil {
			s.t.Errorf("resume %s: %v", process, err)
		}
	}
	return len(suspended)
}
