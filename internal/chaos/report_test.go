//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// figure is a number that must not be zero after a long run, because a check without data proves
// nothing.
type figure struct {
	what string
	n    int
}

// rare lists figures that may be zero in runs of less than three minutes.
var rare = []string{"tasks of crons retried"}

// figures returns the events of a run, in the form of docs/reliability.md.
func (s *chaosRun) figures(conn *pgx.Conn, messages deliveries, rejected int, fires cronCounts) []figure {
	rows := func(sql string) int { return count(s.t, conn, sql) }
	list := []figure{
		{"calls acknowledged", int(s.load.acked.Load())},
		{"attempts that a processor received again", int(s.chain.repeated.Load())},
		{"tasks that took more than one attempt", rows(`SELECT count(*) FROM tasks WHERE attempt > 1`)},
		{"tasks rejected", rows(`SELECT count(*) FROM tasks WHERE rejection IS NOT NULL`)},
		{"tasks that failed their process",
			rows(`SELECT count(*) FROM tasks WHERE status = 'ERROR' AND task_type = 'CALL'`)},
		{"processes repaired", int(s.load.repairs.Load())},
		{"timers fired", rows(`SELECT count(*) FROM tasks
			WHERE task_type = 'TIMEOUT' AND status = 'FINISHED' AND namespace = '` + namespace + `'`)},
		{"messages between processes delivered", messages.delivered},
		{"children started by a message", messages.started},
		{"children cancelled", messages.cancelled},
		{"parents notified of the end of a child", messages.ends},
		{"processes suspended and resumed", len(s.load.commands.windows)},
		{"calls rejected by a suspended process", rejected},
		{"freezes that an engine noticed in time", s.freezes},
		{"tasks repeated while their engine was frozen", s.repeated},
		{"attempts whose times a clock step changed", s.moved},
		{"rows locked by another client", s.locked},
		{"fire times of crons, each decided once", fires.fires},
		{"triggers of crons, each fired once", fires.triggers},
		{"fires that waited for the previous run", fires.queued},
		{"runs that another run replaced", fires.cancelled},
		{"runs that exceeded their timeout", fires.timeouts},
		{"requests of crons", fires.requests},
		{"tasks of crons retried", rows(`SELECT count(*) FROM tasks
			WHERE starts_with(process_id, '~cron/') AND attempt > 1`)},
	}
	for _, c := range counted {
		list = append(list, figure{c.what, int(s.counters[c.metric])})
	}
	return list
}

// report prints the figures of the run. The run fails if a timer fired early. A long run also fails
// if a fault was never injected or a figure is 0.
func (s *chaosRun) report(conn *pgx.Conn, entries []*entry, figures []figure) {
	s.t.Logf("the longest operation took %s; clients saw %v", longest(entries).Round(time.Millisecond), &s.load.seen)
	long := isFullRound()
	lines := []string{fmt.Sprintf("what happened (seed %d, %s):", s.seed, *chaosDuration)}
	for _, f := range faults {
		lines = append(lines, fmt.Sprintf("%-58s %6d  answered again within %s",
			f.name, s.fired[f.name], s.recovery[f.name].Round(time.Millisecond)))
		if long && s.fired[f.name] == 0 {
			s.t.Errorf("this fault was never injected: %s", f.name)
		}
	}
	for _, f := range figures {
		lines = append(lines, fmt.Sprintf("%-58s %6d", f.what, f.n))
		if long && f.n == 0 && (*chaosDuration >= 3*time.Minute || !slices.Contains(rare, f.what)) {
			s.t.Errorf("none: %s", f.what)
		}
	}
	s.t.Log(strings.Join(lines, "\n"))
	early := count(s.t, conn, `SELECT count(*) FROM tasks
		WHERE task_type = 'TIMEOUT' AND running_time < scheduled_time`)
	if early > 0 {
		s.t.Errorf("%d timers fired early", early)
	}
}
