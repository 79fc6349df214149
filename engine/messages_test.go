package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// startOf returns a command that starts a process.
func startOf(id string, change ...func(*progressorv1.StartCommand)) *progressorv1.Command {
	c := &progressorv1.StartCommand{ProcessId: id, Args: []byte("child")}
	for _, f := range change {
		f(c)
	}
	return &progressorv1.Command{Command: &progressorv1.Command_Start{Start: c}}
}

// noted is a processor whose state is the list of the args of its NOTIFY tasks.
func noted(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	return processor.Result().Event(r.GetArgs()).AuxState(append(r.GetProcess().GetAuxState(), r.GetArgs()...)).Done()
}

// state returns the state of a process, or "" if there is none.
func (n *node) state(t testing.TB, id string) string {
	t.Helper()
	p, err := n.GetProcess(context.Background(), key(id), nil, 0)
	if err != nil {
		return ""
	}
	return string(p.GetAuxState())
}

// A result starts a process, and notifies this process and the sender in the order of the commands.
// Notifications to a process or a namespace that does not exist become dead letters.
func TestCommands(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	reg := newRegistry()
	n := start(t, dsn, byTask{notifyTask: noted,
		callTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			b := processor.Result().Command(startOf("child"))
			for i := range 5 {
				b.Notify("", "child", fmt.Appendf(nil, " %d", i))
			}
			return b.Notify("ns", "p", []byte(" self")).Notify("", "nobody", []byte("?")).Notify("nowhere", "p",
				nil).Done()
		}}, reg.use)
	n.put(t, &progressorv1.Namespace{Namespace: "ns", CommandNamespaces: []string{"nowhere"}})
	n.started(t, "p")
	n.called(t, "p", "go")
	eventually(t, "the child has all notifications", func() bool { return n.state(t, "child") == "child 0 1 2 3 4" })
	eventually(t, "the sender has its notification", func() bool { return n.state(t, "p") == "start self" })
	rows := openDB(t, dsn)
	eventually(t, "all messages are delivered", func() bool {
		return rows.count(t, "SELECT count(*) FROM messages") == 0
	})
	got := rows.texts(t, `SELECT namespace || '/' || process_id || ' ' || outcome FROM dead_letters
		ORDER BY message_id`)
	if fmt.Sprint(got) != "[ns/nobody not_found nowhere/p not_found]" {
		t.Errorf("dead letters: %q", got)
	}
	// A start of an existing process does nothing.
	n.called(t, "p", "again")
	eventually(t, "the child has more notifications", func() bool {
		return n.state(t, "child") == "child 0 1 2 3 4 0 1 2 3 4"
	})
	for labels, want := range map[string]float64{"delivered": 1 + 2*6, "exists": 1, "not_found": 4} {
		eventually(t, labels, func() bool {
			return reg.value(t, "progressor_messages_total", "outcome="+labels) == want
		})
	}
}

// A processor cannot send commands of any kind to a namespace that the configuration of its own
// namespace does not allow. No message of such a response is sent.
func TestCommandsToOtherNamespaces(t *testing.T) {
	t.Parallel()
	type builder = processor.ResultBuilder
	commands := map[string]func(*builder, string) *builder{
		"start":  func(b *builder, to string) *builder { return b.Start(to, "x", nil) },
		"notify": func(b *builder, to string) *builder { return b.Notify(to, "x", nil) },
		"cancel": func(b *builder, to string) *builder { return b.Cancel(to, "x", "") },
	}
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{
		initTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			kind, to, _ := strings.Cut(string(r.GetArgs()), " ")
			return commands[kind](processor.Result().Notify("", "own", nil), to).Done()
		},
	})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", CommandNamespaces: []string{"shop/*", "billing"}})
	try := func(args string) error {
		_, err := n.Start(t.Context(),
			engine.StartParams{Key: key(strings.ReplaceAll(args, " ", "-")), Args: []byte(args)})
		return err
	}
	for kind := range commands {
		for _, to := range []string{"shop", "shopping", "billing/x", "far"} {
			var failed *engine.TaskError
			if err := try(kind + " " + to); !errors.As(err, &failed) ||
				failed.Failure.GetReason() != process.ReasonBadResponse ||
				!strings.Contains(failed.Failure.GetMessage(),
					fmt.Sprintf("commands[1]: the namespace %q is not one", to)) {
				t.Errorf("%s to %s: %v", kind, to, err)
			}
		}
	}
	rows := openDB(t, dsn)
	sent := rows.count(t, "SELECT (SELECT count(*) FROM messages) + (SELECT count(*) FROM dead_letters)")
	if sent != 0 {
		t.Errorf("%d messages were sent", sent)
	}
	for kind := range commands {
		for _, to := range []string{"", "ns", "shop/a", "billing"} {
			if err := try(kind + " " + to); err != nil {
				t.Errorf("%s to %q: %v", kind, to, err)
			}
		}
	}
}

// child is a processor whose args select how it ends.
func child(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	switch string(r.GetArgs()) {
	case "complete":
		return processor.Result().Response([]byte("all done")).Complete().Done()
	case "fail":
		return nil, processor.Fail("sold_out", "nothing is left")
	case "reject":
		return nil, processor.Reject("no", "not today")
	case "remove":
		return processor.Result().Remove().Done()
	}
	return processor.Result().Done()
}

// A parent in one namespace has children in another, and is notified of how each of them ended.
func TestParentAndChildren(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	ends := make(chan *progressorv1.ProcessRequest, 100)
	n := start(t, dsn, byTask{
		initTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			b := processor.Result()
			for id, args := range map[string]string{
				"c": "complete", "f": "fail", "rj": "reject", "rm": "remove", "l": "live",
			} {
				b.Command(startOf(id, func(c *progressorv1.StartCommand) {
					c.Namespace, c.Args, c.NotifyParentArgs = "children", []byte(args), []byte("end of "+args)
				}))
			}
			return b.Command(startOf("none", func(c *progressorv1.StartCommand) {
				c.Namespace, c.NotifyParentArgs = "childless", []byte("end of nothing")
			})).Done()
		},
		notifyTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			ends <- r
			return processor.Result().Done()
		},
	}, func(c *engine.Config) { c.Builtins["children"] = byTask{initTask: child} })
	n.put(t, &progressorv1.Namespace{Namespace: "children", Processor: &progressorv1.ProcessorConfig{
		Transport: &progressorv1.ProcessorConfig_Builtin{Builtin: &progressorv1.BuiltinProcessor{Name: "children"}},
	}})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", CommandNamespaces: []string{"child*"}})
	n.started(t, "parent")
	got := map[string]string{}
	next := func() {
		r := receive(t, "the end of a child", ends)
		c := r.GetChild()
		if !strings.HasPrefix(c.GetNamespace(), "child") || r.GetProcess().GetProcessId() != "parent" {
			t.Errorf("%v", r)
		}
		got[string(r.GetArgs())] = fmt.Sprintf("%s %s %q %q", c.GetProcessId(), c.GetStatus(), c.GetResponse(),
			c.GetDetail())
	}
	for range 5 {
		next()
	}
	live := process.Key{Namespace: "children", ProcessID: "l"}
	eventually(t, "the last child runs", func() bool {
		p, err := n.GetProcess(t.Context(), live, nil, 0)
		return err == nil && p.GetStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING
	})
	if err := n.RemoveProcess(t.Context(), live, process.Actor{}); err != nil {
		t.Fatal(err)
	}
	next()
	for args, want := range map[string]string{
		"end of complete": `c PROCESS_STATUS_COMPLETED "all done" ""`,
		"end of fail":     `f PROCESS_STATUS_ERROR "" "nothing is left"`,
		"end of reject":   `rj PROCESS_STATUS_UNSPECIFIED "" "rejected: no: not today"`,
		"end of remove":   `rm PROCESS_STATUS_UNSPECIFIED "" ""`,
		"end of live":     `l PROCESS_STATUS_UNSPECIFIED "" ""`,
		"end of nothing":  `none PROCESS_STATUS_UNSPECIFIED "" "not started: the namespace does not exist"`,
	} {
		if got[args] != want {
			t.Errorf("%s: %s, want %s", args, got[args], want)
		}
	}
	if len(ends) > 0 {
		t.Errorf("notified again: %v", <-ends)
	}
}

// A parent cancels its child and is notified that it was cancelled.
func TestParentCancelsChild(t *testing.T) {
	t.Parallel()
	ends := make(chan *progressorv1.ProcessRequest, 10)
	n := start(t, storagetest.DSN(t), byTask{
		callTask:    answers(processor.Result().StartChild("", "child", nil, nil)),
		timeoutTask: answers(processor.Result()),
		cancelTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return processor.Result().Response([]byte("stopped: " + r.GetCancelReason())).Done()
		},
		notifyTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if r.GetChild() == nil {
				return processor.Result().Cancel("", "child", "too late").Done()
			}
			ends <- r
			return processor.Result().Done()
		},
	})
	n.started(t, "parent")
	n.called(t, "parent", "x")
	eventually(t, "the child runs", func() bool { return n.status(t, "child") == "RUNNING" })
	if _, err := n.Call(t.Context(), engine.CallParams{Key: key("parent"), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	c := receive(t, "the end of the child", ends).GetChild()
	if c.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED ||
		string(c.GetResponse()) != "stopped: too late" {
		t.Errorf("%v", c)
	}
	if got := n.status(t, "child"); got != "CANCELLED" {
		t.Errorf("the child is %s", got)
	}
}

// If a node dies after it has stored messages but before it has delivered them, another node
// delivers them once.
func TestNodeDiesBeforeTheDelivery(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	p := byTask{
		notifyTask: noted,
		callTask: answers(processor.Result().Command(startOf("child")).Notify("", "child", []byte(" told")).Notify("",
			"p", []byte(" self"))),
	}
	a := start(t, dsn, p, func(c *engine.Config) { c.ScanInterval = time.Hour })
	a.store.OnMessages(func([]process.Key, bool) {}) // so that this node delivers nothing
	a.started(t, "p")
	a.called(t, "p", "x")
	rows := openDB(t, dsn)
	if got := rows.count(t, "SELECT count(*) FROM messages"); got != 3 {
		t.Fatalf("%d messages are stored, want 3", got)
	}
	a.crash()
	b, c := start(t, dsn, p), start(t, dsn, p)
	eventually(t, "the child has its notification", func() bool { return b.state(t, "child") == "child told" })
	eventually(t, "the sender has its notification", func() bool { return c.state(t, "p") == "start self" })
	if got := rows.count(t, "SELECT count(*) FROM task_list WHERE task_type = 'NOTIFY'"); got != 2 {
		t.Errorf("%d NOTIFY tasks, want 2", got)
	}
}

// A message to a process in ERROR waits for the repair and is delivered right after it.
func TestMessageWaitsForRepair(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{
		notifyTask: noted, repairTask: answers(processor.Result()),
		callTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if string(r.GetArgs()) == "break" {
				return nil, processor.Fail("broken", "by request")
			}
			return processor.Result().Notify("", "broken", r.GetArgs()).Done()
		},
	}, func(c *engine.Config) { c.ScanInterval = time.Hour })
	rows := openDB(t, dsn)
	n.started(t, "sender")
	n.started(t, "broken")
	for round, simple := range []bool{true, false} {
		res := receive(t, "the process goes to ERROR", n.calling("broken", "break"))
		if taskError(t, res.err).Failure == nil {
			t.Fatalf("%+v", res)
		}
		n.called(t, "sender", fmt.Sprint(" ", round))
		eventually(t, "the message is held", func() bool {
			return rows.count(t, "SELECT count(*) FROM messages WHERE held") == 1
		})
		if _, err := n.Repair(t.Context(), engine.RepairParams{Key: key("broken"), Simple: simple}); err != nil {
			t.Fatal(err)
		}
		want := "start 0 1"[:7+2*round]
		eventually(t, "the message is delivered", func() bool { return n.state(t, "broken") == want })
	}
}

// connections returns a function that allows or rejects new connections to the test database.
func connections(t *testing.T, rows db) func(allow bool) {
	t.Helper()
	config := rows.Config().ConnConfig.Copy()
	name := config.Database
	config.Database = "postgres"
	return func(allow bool) {
		ctx := context.Background()
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS %t",
			pgx.Identifier{name}.Sanitize(), allow)); err != nil {
			t.Fatal(err)
		}
	}
}

// Messages that an application sends in a transaction are delivered right after the commit, and not
// at all after a rollback. While no session listens, the node finds messages without NOTIFY.
func TestFunctionsAreHeard(t *testing.T) {
	t.Parallel()
	storagetest.NeedsNotify(t)
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{notifyTask: noted}, func(c *engine.Config) { c.ScanInterval = time.Hour })
	n.started(t, "p")
	rows := openDB(t, dsn)
	listening := `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND application_name = 'progressor listen' AND query LIKE 'LISTEN%' AND state = 'idle'`
	eventually(t, "the node listens", func() bool { return rows.count(t, listening) == 1 })
	send := func(args string, commit bool) {
		t.Helper()
		tx, err := rows.Begin(t.Context())
		if err == nil {
			_, err = tx.Exec(t.Context(), `SELECT progressor.start('ns', 'new', 'new'),
		progressor.notify('ns', 'new', $1), progressor.notify('ns', 'p', $1)`, []byte(args))
		}
		if err != nil {
			t.Fatal(err)
		}
		n.called(t, "p", "start") // while the transaction is open
		if !commit {
			err = tx.Rollback(t.Context())
		} else {
			err = tx.Commit(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	send(" a", false)
	send(" b", true)
	eventually(t, "the committed messages are delivered", func() bool {
		return n.state(t, "new") == "new b" && n.state(t, "p") == "start b"
	})
	// The listening connection breaks, and the database accepts no new connections.
	allow := connections(t, rows)
	allow(false)
	t.Cleanup(func() { allow(true) })
	storagetest.Exec(t, rows, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name = 'progressor listen'`)
	eventually(t, "no session listens", func() bool { return rows.count(t, listening) == 0 })
	send(" c", true)
	eventually(t, "messages without NOTIFY are delivered", func() bool {
		return n.state(t, "new") == "new b c" && n.state(t, "p") == "start c"
	})
}

// Messages from SQL to a process whose row another client has locked do not delay messages to other
// processes.
func TestLockedTargetDelaysNoOther(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{notifyTask: noted})
	n.started(t, "locked")
	n.started(t, "other")
	rows := openDB(t, dsn)
	tx := storagetest.Begin(t, rows.Pool, "SELECT 1 FROM processes WHERE process_id = 'locked' FOR UPDATE")
	for _, target := range []string{"locked", "other"} {
		storagetest.Exec(t, rows, "SELECT progressor.notify('ns', $1, ' x') FROM generate_series(1, 300)", target)
	}
	x := strings.Repeat(" x", 300)
	eventually(t, "the other target has its messages", func() bool { return n.state(t, "other") == "start"+x })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the locked target has its messages after the lock is released", func() bool {
		return n.state(t, "locked") == "start"+x
	})
}
