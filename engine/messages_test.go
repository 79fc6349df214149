package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// startOf is a command that starts a process.
func startOf(id string, change ...func(*progressorv1.StartCommand)) *progressorv1.Command {
	c := &progressorv1.StartCommand{ProcessId: id, Args: []byte("child")}
	for _, f := range change {
		f(c)
	}
	return &progressorv1.Command{Command: &progressorv1.Command_Start{Start: c}}
}

// noted is a processor whose state is a list of what NOTIFY tasks brought.
func noted(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	return processor.Result().Event(r.GetArgs()).AuxState(append(r.GetProcess().GetAuxState(), r.GetArgs()...)).Done()
}

// state is the state of a process; "" where there is none.
func (n *node) state(t testing.TB, id string) string {
	t.Helper()
	p, err := n.GetProcess(context.Background(), key(id), nil, 0)
	if err != nil {
		return ""
	}
	return string(p.GetAuxState())
}

// A result starts a process and notifies it, another one, and the sender itself, in the order in which it says so.
func TestCommands(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	reg := newRegistry()
	n := start(t, dsn, by{notifyTask: noted, callTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		b := processor.Result().Command(startOf("child"))
		for i := range 5 {
			b.Notify("", "child", fmt.Appendf(nil, " %d", i))
		}
		return b.Notify("ns", "p", []byte(" self")).Notify("", "nobody", []byte("?")).Notify("nowhere", "p", nil).Done()
	}}, reg.use)
	n.started(t, "p")
	n.called(t, "p", "go")
	eventually(t, "the child knows all", func() bool { return n.state(t, "child") == "child 0 1 2 3 4" })
	eventually(t, "the sender knows", func() bool { return n.state(t, "p") == "start self" })
	rows := look(t, dsn)
	eventually(t, "all is delivered", func() bool { return rows.count(t, "SELECT count(*) FROM messages") == 0 })
	if got := rows.texts(t, "SELECT namespace || '/' || process_id || ' ' || outcome FROM dead_letters ORDER BY message_id"); fmt.Sprint(got) != "[ns/nobody not_found nowhere/p not_found]" {
		t.Errorf("dead letters: %q", got)
	}
	// The start of a process that exists does nothing.
	n.called(t, "p", "again")
	eventually(t, "the child knows more", func() bool { return n.state(t, "child") == "child 0 1 2 3 4 0 1 2 3 4" })
	for labels, want := range map[string]float64{"delivered": 1 + 2*6, "exists": 1, "not_found": 4} {
		eventually(t, labels, func() bool { return reg.value(t, "progressor_messages_total", "outcome="+labels) == want })
	}
}
