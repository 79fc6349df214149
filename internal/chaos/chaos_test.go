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

// siege is a run of TestChaos: three engines, each behind a proxy of its own, one PostgreSQL, many clients.
type siege struct {
	t       testing.TB
	random  *rand.Rand
	server  *pgembed.Server
	dsn     string
	chain   *chain
	fleet   *fleet
	load    *load
	nodes   []*node
	proxies []*proxy
	started int
	old     *pgx.Conn // holds a snapshot

	fired    map[string]int
	recovery map[string]time.Duration // the longest, by fault, until calls were answered again
	counters map[string]float64       // of engines that are gone
}

// counted are the ways to recover that a run must have taken.
var counted = []string{
	"progressor_zombies_total", "progressor_tasks_adopted_total", "progressor_stale_results_total", "progressor_flush_recoveries_total",
}

// faults are what a siege does; each ends with everything healed.
var faults = []struct {
	name   string
	strike func(*siege, int) // the number of an engine
}{
	{"kill an engine", (*siege).kill},
	{"kill an engine that is cut off", (*siege).killDumb},
	{"stop an engine past its lease", (*siege).stop},
	{"restart an engine", (*siege).roll},
	{"crash PostgreSQL", (*siege).crash},
	{"terminate backends", (*siege).terminate},
	{"lose answers of PostgreSQL", (*siege).deafen},
	{"swallow an engine's connections", (*siege).swallow},
	{"cut an engine's connections", func(s *siege, i int) { s.proxies[i].cut() }},
	{"an old snapshot stays open", (*siege).remember},
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
		took := await(t, patience, "calls are answered after: "+f.name, func() bool { return s.load.acked.Load() >= before+50 })
		s.recovery[f.name] = max(s.recovery[f.name], took)
	}
	s.conclude()
}

func newSiege(t testing.TB, seed uint64) *siege {
	s := &siege{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), server: durable.get(t),
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
	s.fleet = newFleet(t, s.nodes...)
	s.fleet.start(50)
	s.load = startLoad(s.fleet, plan{clients: 48, processes: 50, seed: seed, vary: vary})
	return s
}

// vary makes operations of all kinds. What is only accepted would be cancelled where its process breaks, so that processes with
// an even number never do.
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
	}
}

// open starts an engine at a place that is free.
func (s *siege) open(i int) {
	s.started++
	s.nodes[i] = startNode(s.t, fmt.Sprintf("engine-%d-%d", i, s.started), s.proxies[i].dsn)
	if s.fleet != nil {
		s.fleet.seat(i, s.nodes[i])
	}
}

// harvest keeps the counters of an engine that is about to go.
func (s *siege) harvest(n *node) {
	for _, name := range counted {
		s.counters[name] += n.metric(name)
	}
}

// busy holds the processor until an engine runs tasks, if it comes to that: its clients may all wait for others.
func (s *siege) busy(i int) {
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	g := s.chain.hold(nil)
	soon(2*time.Second, func() bool { return g.arrived.Load() >= 2 && running(s.t, conn, s.nodes[i]) >= 2 })
}

// soon waits for something that may not come.
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

func (s *siege) kill(i int) {
	s.busy(i)
	s.harvest(s.nodes[i])
	s.nodes[i].kill()
	s.chain.openAll()
	s.open(i)
}

// killDumb kills an engine while nothing that it wants to store gets through: what it has told by then must stand.
func (s *siege) killDumb(i int) {
	s.busy(i)
	s.harvest(s.nodes[i])
	s.proxies[i].swallow()
	s.chain.openAll()
	soon(200*time.Millisecond, func() bool { return !s.nodes[i].isReady() }) // the answers of the processor come meanwhile
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
	await(s.t, patience, "the others have taken over", func() bool {
		return running(s.t, conn, n) == 0 && count(s.t, conn, `SELECT count(*) FROM nodes WHERE address = $1
			AND beat_time < statement_timestamp() - interval '1.2 s'`, n.name) == 1
	})
	n.signal(syscall.SIGCONT)
	await(s.t, patience, "the engine is ready again", n.isReady)
}

func (s *siege) roll(i int) {
	n := s.nodes[i]
	s.busy(i)
	s.harvest(n)
	n.signal(syscall.SIGTERM)
	await(s.t, patience, "the engine drains", func() bool { return n.log.has(`"msg":"draining"`) })
	s.chain.openAll()
	if code := n.exit(); code != 0 {
		s.t.Errorf("engine %s ended with code %d", n.name, code)
	}
	s.open(i)
}

func (s *siege) crash(int) {
	crash(s.t, s.server)
	if s.random.IntN(2) == 0 {
		await(s.t, patience, "the engines know that they are cut off", func() bool {
			return !slices.ContainsFunc(s.nodes, (*node).isReady)
		})
	}
	restart(s.t, s.server)
	await(s.t, patience, "the engines are ready again", func() bool {
		return !slices.ContainsFunc(s.nodes, func(n *node) bool { return !n.isReady() })
	})
}

func (s *siege) terminate(int) {
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	terminateBackends(s.t, conn)
}

// remember opens a snapshot and leaves it open until its next turn: nothing that is deleted meanwhile can be vacuumed.
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

func (s *siege) deafen(i int) {
	p := s.proxies[i]
	before := p.lost.Load()
	p.loseAnswers()
	soon(2*time.Second, func() bool { return p.lost.Load() >= before+5 })
	p.pass()
}

func (s *siege) swallow(i int) {
	s.proxies[i].swallow()
	await(s.t, patience, "the engine knows that it is cut off", func() bool { return !s.nodes[i].isReady() })
	s.proxies[i].pass()
	await(s.t, patience, "the engine is ready again", s.nodes[i].isReady)
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

// conclude heals everything, waits until all is done and compares.
func (s *siege) conclude() {
	s.chain.openAll()
	entries := s.load.finish()
	for _, n := range s.nodes {
		s.harvest(n)
	}
	settle(s.t, s.dsn)
	verify(s.t, s.dsn, entries)
	replay(s.t, s.fleet, entries)
	s.t.Logf("%d repairs, %d attempts seen again, %d refused; the longest operation took %s; clients saw %v", s.load.repairs.Load(),
		s.chain.repeated.Load(), s.chain.refused.Load(), longest(entries).Round(time.Millisecond), &s.load.seen)
	var lines []string
	for _, f := range faults {
		lines = append(lines, fmt.Sprintf("%-34s %3d times, calls were answered again within %s", f.name, s.fired[f.name], s.recovery[f.name].Round(time.Millisecond)))
	}
	for _, name := range counted {
		lines = append(lines, fmt.Sprintf("%-40s %v", name, s.counters[name]))
	}
	s.t.Logf("what happened:\n%s", strings.Join(lines, "\n"))
	conn := observe(s.t, s.dsn)
	timers := count(s.t, conn, `SELECT count(*) FROM tasks WHERE task_type = 'TIMEOUT' AND status = 'FINISHED'`)
	early := count(s.t, conn, `SELECT count(*) FROM tasks WHERE task_type = 'TIMEOUT' AND running_time < scheduled_time`)
	if early > 0 || timers == 0 {
		s.t.Errorf("%d of %d timers fired early", early, timers)
	}
	s.notVacuous(conn)
}

// notVacuous fails a long run in which something was never broken, or a way to recover never taken.
func (s *siege) notVacuous(conn *pgx.Conn) {
	if *chaosDuration < time.Minute {
		return
	}
	for _, f := range faults {
		if s.fired[f.name] == 0 {
			s.t.Errorf("it never came to: %s", f.name)
		}
	}
	for _, name := range counted {
		if s.counters[name] == 0 {
			s.t.Errorf("%s is 0", name)
		}
	}
	for what, sql := range map[string]string{
		"second attempts": `SELECT count(*) FROM tasks WHERE attempt > 1`,
		"rejections":      `SELECT count(*) FROM tasks WHERE rejection IS NOT NULL`,
		"failures":        `SELECT count(*) FROM tasks WHERE status = 'ERROR'`,
		"notifications":   `SELECT count(*) FROM tasks WHERE task_type = 'NOTIFY' AND status = 'FINISHED'`,
	} {
		if count(s.t, conn, sql) == 0 {
			s.t.Errorf("no %s", what)
		}
	}
	if s.load.repairs.Load() == 0 || s.chain.repeated.Load() == 0 {
		s.t.Error("nothing was repaired, or nothing was asked for again")
	}
}
