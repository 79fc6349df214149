//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/internal/pgembed"
)

// siege is a run of TestChaos: three engines, each behind its own proxy, one PostgreSQL, and many
// clients.
type siege struct {
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
	flows   *flowWatch
	nodes   []*node
	proxies []*proxy
	started int
	tenants *tenants
	old     *pgx.Conn // holds a snapshot

	freezes  int // how often an engine cancelled its attempts before it was declared dead
	repeated int // tasks with two live attempts while an engine was frozen
	moved    int // attempts whose times were moved by clock steps
	locked   int // rows that another client has locked

	fired    map[string]int
	recovery map[string]time.Duration // longest time until calls were answered again, by fault
	counters map[string]float64       // of engines that have ended
}

// counted lists the recoveries that a run must have used, by the metrics of the engines.
var counted = []struct{ what, metric string }{
	{"tasks of dead engines taken over", "progressor_zombies_total"},
	{"tasks adopted whose commit lost its answer", "progressor_tasks_adopted_total"},
	{"results refused under an old token", "progressor_stale_results_total"},
	{"flushes recovered after a broken connection", "progressor_flush_recoveries_total"},
	{"attempts cancelled by an engine that was frozen or cut off", "progressor_attempts_fenced_total"},
	{"items that did not wait for a locked row", "progressor_flush_contended_total"},
	{"messages held for a suspended process", `progressor_messages_total{kind="notify",namespace="chain",outcome="held"}`},
}

// faults are the faults of a siege. Each one ends with everything healed.
var faults = []struct {
	name   string
	strike func(*siege, int) // the argument is the number of an engine
}{
	{"kill an engine", (*siege).kill},
	{"kill an engine that is cut off", (*siege).killDumb},
	{"stop an engine past its lease", (*siege).stop},
	{"freeze an engine for less than its lease", (*siege).freeze},
	{"freeze an engine whose processor works on", (*siege).freezeLong},
	{"set the clock of PostgreSQL forward", (*siege).clockForward},
	{"set the clock of PostgreSQL back", (*siege).clockBackward},
	{"restart an engine", (*siege).roll},
	{"crash PostgreSQL", (*siege).crash},
	{"terminate backends", (*siege).terminate},
	{"lose answers of PostgreSQL", (*siege).deafen},
	{"swallow an engine's connections", (*siege).swallow},
	{"cut an engine's connections", func(s *siege, i int) { s.proxies[i].cut() }},
	{"an old snapshot stays open", (*siege).remember},
	{"rows locked by another client", (*siege).lockRows},
	{"a process with a long queue ends", (*siege).queueUp},
	{"many namespaces with a backlog", (*siege).pileUp},
	{"slow processor", (*siege).slow},
	{"processor away", (*siege).away},
}

func TestChaos(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d, %s", seed, *chaosDuration)
	s := newSiege(t, seed)
	end := time.Now().Add(*chaosDuration)
	var deck []int
	for decks := 0; time.Now().Before(end) && !t.Failed(); {
		if len(deck) == 0 {
			deck = s.random.Perm(len(faults))
			decks++
		}
		f := faults[deck[0]]
		deck = deck[1:]
		t.Logf("%s: %d answered", f.name, s.load.acked.Load())
		f.strike(s, s.random.IntN(len(s.nodes)))
		s.fired[f.name]++
		before := s.load.acked.Load()
		took := await(t, testTimeout, "calls are answered after: "+f.name, func() bool {
			return s.load.acked.Load() >= before+50
		})
		s.recovery[f.name] = max(s.recovery[f.name], took)
	}
	s.conclude()
}

func newSiege(t testing.TB, seed uint64) *siege {
	s := &siege{
		t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), server: durable.get(t),
		fired: map[string]int{}, recovery: map[string]time.Duration{}, counters: map[string]float64{},
	}
	s.dsn = database(t, s.server)
	s.chain = newChain(t)
	for i := range 3 {
		s.proxies = append(s.proxies, newProxy(t, s.dsn))
		s.nodes = append(s.nodes, nil)
		s.open(i)
	}
	putChain(t, s.nodes[0], s.chain, nil)
	s.tenants = &tenants{}
	s.putTenants()
	s.fleet = newFleet(t, s.nodes...)
	s.fleet.start(50)
	s.crons = startCrons(s.fleet, s.nodes[0], s.chain)
	s.jobs = startJobs(s.fleet, s.nodes[0], seed)
	s.flows = startFlows(s.fleet, s.nodes[0], s.jobs)
	s.load = startLoad(s.fleet, plan{clients: 48, processes: 50, seed: seed, vary: vary, aside: aside(50)})
	return s
}

// vary creates operations of all kinds. Operations that are only accepted, and messages of other
// processes, would be cancelled if their process broke. So processes with an even number never
// break.
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
		e.op += askTell + processID(2*random.IntN(25))
	case kind < 52 && number%2 == 0:
		e.op += askBear + "child-" + e.op
	}
}

// open starts an engine in a free place.
func (s *siege) open(i int) {
	s.started++
	s.nodes[i] = startNode(s.t, fmt.Sprintf("engine-%d-%d", i, s.started), s.proxies[i].dsn)
	if s.fleet != nil {
		s.fleet.seat(i, s.nodes[i])
	}
}

// harvest adds the counters of an engine that is about to end. It scrapes the engine once, because
// the processor holds its calls meanwhile, and a scrape may take as long as it waits for the
// database.
func (s *siege) harvest(n *node) {
	_, scrape := n.get("/metrics")
	for _, c := range counted {
		s.counters[c.metric] += sumOf(scrape, c.metric)
	}
}

// busy holds the processor until it works on two calls of an engine. It gives up after two seconds,
// because all clients may be waiting for other engines.
func (s *siege) busy(i int) {
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	s.chain.hold(nil)
	soon(2*time.Second, func() bool { return s.chain.working(chainCalls(s.t, conn, s.nodes[i])) >= 2 })
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

// soon waits for a condition that may never hold.
func soon(limit time.Duration, met func() bool) bool {
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

// kill ends an engine while it holds calls. If a step of a run ends meanwhile, no engine has stored
// the next step yet.
func (s *siege) kill(i int) {
	s.busy(i)
	s.harvest(s.nodes[i])
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	release := s.flows.holdEnd(conn)
	s.nodes[i].kill()
	release()
	s.chain.openAll()
	s.open(i)
}

// killDumb kills an engine while nothing that it stores gets through. Everything that it has
// acknowledged until then must be stored.
func (s *siege) killDumb(i int) {
	s.busy(i)
	s.harvest(s.nodes[i])
	s.proxies[i].swallow()
	s.chain.openAll()
	soon(200*time.Millisecond, func() bool { return !s.nodes[i].isReady() }) // the processor answers meanwhile
	s.nodes[i].kill()
	s.proxies[i].pass()
	s.open(i)
}

func (s *siege) stop(i int) {
	s.busy(i)
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

func (s *siege) roll(i int) {
	n := s.nodes[i]
	s.busy(i)
	s.harvest(n)
	n.signal(syscall.SIGTERM)
	await(s.t, testTimeout, "the engine drains", func() bool { return n.log.has(`"msg":"draining"`) })
	s.chain.openAll()
	if code := n.exit(); code != 0 {
		s.t.Errorf("engine %s ended with code %d", n.name, code)
	}
	s.open(i)
}

func (s *siege) crash(int) {
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

func (s *siege) terminate(int) {
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	terminateBackends(s.t, conn)
}

// remember opens a snapshot and keeps it open until its next turn. Rows that are deleted meanwhile
// cannot be vacuumed.
func (s *siege) remember(int) {
	if s.old != nil {
		s.old.Close(s.t.Context())
	}
	s.old = observe(s.t, s.dsn)
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM running"} {
		if _, err := s.old.Exec(s.t.Context(), sql); err != nil {
			s.t.Fatal(err)
		}
	}
}

// lockRows locks running processes and tasks, as another client would, until other processes make
// progress.
func (s *siege) lockRows(int) {
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
	soon(2*time.Second, func() bool { return s.load.acked.Load() > before+500 })
}

func (s *siege) deafen(i int) {
	p := s.proxies[i]
	before := p.lost.Load()
	p.loseAnswers()
	soon(2*time.Second, func() bool { return p.lost.Load() >= before+5 })
	p.pass()
}

func (s *siege) swallow(i int) {
	s.proxies[i].swallow()
	await(s.t, testTimeout, "the engine knows that it is cut off", func() bool { return !s.nodes[i].isReady() })
	s.proxies[i].pass()
	await(s.t, testTimeout, "the engine is ready again", s.nodes[i].isReady)
}

func (s *siege) slow(int) {
	g := s.chain.hold(nil)
	soon(2*time.Second, func() bool { return g.arrived.Load() >= 30 })
	s.chain.openAll()
}

func (s *siege) away(int) {
	before := s.chain.refused.Load()
	s.chain.refuse(30)
	soon(5*time.Second, func() bool { return s.chain.refused.Load() >= before+30 })
	s.chain.refuse(0)
}

// conclude heals everything, waits until all work is done, and compares the results.
func (s *siege) conclude() {
	s.chain.openAll()
	s.flows.stop()
	entries := s.load.finish()
	conn := observe(s.t, s.dsn)
	await(s.t, testTimeout, "no process is suspended", func() bool { return s.resumeAll(conn) == 0 })
	await(s.t, testTimeout+time.Minute, "leases from before a backward step of the clock have begun again", func() bool {
		return count(s.t, conn, `SELECT count(*) FROM leases
			WHERE expires_time > statement_timestamp() + interval '1 minute'`) == 0
	})
	s.crons.end(s.load, conn)
	runs := s.flows.end(conn)
	jobs := s.jobs.end(conn)
	others := s.settleTenants(conn)
	settle(s.t, s.dsn)
	for _, n := range s.nodes {
		s.harvest(n)
	}
	histories := verify(s.t, s.dsn, entries)
	said, wrong := delivered(histories, childStatuses(s.t, conn), s.load.orders.cancelled)
	turnedAway, done := held(s.load.orders.windows, entries)
	fires, odd := s.crons.ledger(s.crons.rows(conn), s.crons.runs(conn))
	for _, w := range slices.Concat(wrong, done, odd, s.jobs.judge(jobs), s.flows.judge(runs), s.tenants.judge(others)) {
		s.t.Error(w)
	}
	replay(s.t, s.fleet, entries)
	s.tell(conn, entries, slices.Concat(
		s.figures(conn, said, turnedAway, fires), s.jobs.figures(jobs), s.flows.figures(runs), s.tenants.figures()))
}

// resumeAll resumes processes that an engine suspended by an old request after it was disconnected.
// It returns their number.
func (s *siege) resumeAll(conn *pgx.Conn) int {
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
