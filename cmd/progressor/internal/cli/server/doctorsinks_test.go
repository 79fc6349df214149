package server

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Doctor reports the sinks that do not deliver or soon will not, and no others.
func TestDoctorFindsSinks(t *testing.T) {
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	pool := storagetest.Connect(t, dsn)
	run := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	for _, sql := range []string{
		`INSERT INTO progressor.namespaces (namespace, config) VALUES ('n', '{}'), ('idle', '{}')`,
		`INSERT INTO progressor.change_heads (namespace) VALUES ('n')`,
		`INSERT INTO progressor.changes (namespace, lane, seq, change_id, "time", kind, type, process_id)
			SELECT 'n', lane, 5, 5, now() - interval '50 minutes', 'event', 'stored', 'p' FROM progressor.change_heads`,
		`INSERT INTO progressor.change_drops (namespace, lane, seq, "time")
			SELECT 'n', lane, 4, now() - interval '1 day' FROM progressor.change_heads`,
	} {
		run(sql)
	}
	// sink inserts a sink without a lease. The argument more sets further columns, such as those of
	// a lease.
	sink := func(ns, id, state, more string) {
		run(`INSERT INTO progressor.sinks (namespace, sink_id, config, secrets, revision, state, lanes, seqs, max_lag,
				resumed_time, token, delivered, failures, last_error, last_error_time, dead_letters, created_time,
				updated_time)
			SELECT $1, $2, '{}', '{}', 1, $3, array_agg(lane), array_agg(4), interval '7 days',
				now() - interval '2 days', 1, 0, 3, 'HTTP 500', now() - interval '65 s', 0, now(), now()
			  FROM progressor.change_heads`, ns, id, state)
		if more != "" {
			run(`UPDATE progressor.sinks SET `+more+` WHERE namespace = $1 AND sink_id = $2`, ns, id)
		}
	}
	const live = "node_id = 99, lease_time = now() + interval '10 minutes'"
	sink("n", "fails", "FAILING", live)
	sink("n", "broken", "BROKEN", "")
	sink("n", "gone", "DISABLED", "")
	sink("n", "late", "PAUSED", "max_lag = interval '1 hour'")
	sink("n", "resumed", "PAUSED", "max_lag = interval '1 hour', resumed_time = now()")
	sink("n", "lost", "ACTIVE", "seqs[1] = 3, "+live)
	sink("n", "left", "ACTIVE", "node_id = 98, lease_time = now() - interval '5 minutes'")
	sink("n", "waits", "ACTIVE", "")
	sink("n", "rejects", "ACTIVE", live)
	sink("idle", "sound", "ACTIVE", "")
	run(`INSERT INTO progressor.sink_dead_letters
		SELECT 'n', CASE WHEN n = 3 THEN 'fails' ELSE 'rejects' END, n, 'event', 'stored', 'p', now(), 'HTTP 413',
			now() - CASE WHEN n = 3 THEN interval '2 days' ELSE interval '0' END
		  FROM generate_series(1, 3) n`)
	p := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_DB_DSN": dsn}}
	r := p.Run(t, "doctor")
	_, warnings, found := strings.Cut(r.Stdout, "\nwarnings: ")
	warnings, _, _ = strings.Cut(warnings, "\nviolations: ")
	if !found {
		t.Fatalf("%+v", r)
	}
	var got []string
	for line := range strings.Lines(regexp.MustCompile(`\d+m\d*s?`).ReplaceAllString(warnings, "N m")) {
		if strings.Contains(line, "sink") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	const explain = ". Next: progressor explain sink n "
	const noNode = ". Next: check that a node runs without engine.requests_only, and look for \"cannot read the " +
		"sinks\" in its log"
	wanted := []string{
		"- sink n/broken has been BROKEN for N m, and delivers nothing: HTTP 500" + explain + "broken",
		"- sink n/fails fails: 3 failures in a row, the last one N m ago: HTTP 500" + explain + "fails",
		"- sink n/gone has been DISABLED for N m, and delivers nothing: HTTP 500" + explain + "gone",
		"- sink n/late (PAUSED) has not delivered a change for N m, and becomes BROKEN after 1h (max_lag)" + explain +
			"late",
		"- no node delivers for sink n/left: the lease of node 98, which is gone, ended N m ago" + noNode,
		"- changes were deleted before sink n/lost delivered them: it becomes BROKEN when it continues" + explain +
			"lost",
		"- the target of sink n/rejects rejected 2 changes permanently in the last 24 h. Next: progressor sink get n " +
			"rejects lists them; progressor sink retry n rejects --all delivers them again",
		"- no node delivers for sink n/waits: its oldest change has waited for N m" + noNode,
	}
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
	}
}
