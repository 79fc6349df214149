//go:build linux

package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Possible histories are accepted. Impossible histories are rejected, and a page that shows their
// operations is written.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	const unanswered = -1
	type call struct {
		op           string
		begun, ended int64
		// The chain in the response. Without a response, the position in the chain, or nil if the
		// operation is not in the chain.
		chain []string
	}
	read := func(chain ...string) call { return call{"", 100, 101, chain} }
	tests := []struct {
		name  string
		calls []call
		legal bool
	}{
		{"one after the other", []call{{"a", 0, 1, []string{"a"}}, {"b", 2, 3, []string{"a", "b"}}, read("a", "b")},
			true},
		{"concurrent, in either order",
			[]call{{"b", 1, 3, []string{"b"}}, {"a", 0, 5, []string{"b", "a"}}, read("b", "a")}, true},
		{"before an operation that had ended when it began",
			[]call{{"b", 2, 3, []string{"b"}}, {"a", 0, 1, []string{"b", "a"}}, read("b", "a")}, false},
		{"two operations with the same position",
			[]call{{"a", 0, 1, []string{"a"}}, {"b", 2, 3, []string{"b"}}, read("a")}, false},
		{"twice", []call{{"a", 0, 1, []string{"a"}}, {"b", 2, 3, []string{"a", "a", "b"}}, read("a", "a", "b")}, false},
		{"answered an operation that was not applied", []call{{"a", 0, 1, []string{"a"}}, read()}, false},
		{"a position that no operation has",
			[]call{{"a", 0, 1, []string{"a"}}, {"c", 2, 3, []string{"a", "b", "c"}}, read("a", "b", "c")}, false},
		{"a position that an unanswered operation may have", []call{
			{"a", 0, 1, []string{"a"}}, {"b", 0, unanswered, nil}, {"c", 2, 3, []string{"a", "b", "c"}},
			read("a", "b", "c"),
		}, true},
		{"an unanswered operation, executed late", []call{
			{"a", 0, 1, []string{"a"}}, {"c", 2, 3, []string{"a", "c"}}, {"b", 0, unanswered, []string{"a", "c", "b"}},
			read("a", "c", "b"),
		}, true},
		{"an unanswered operation, executed before its request", []call{
			{"b", 2, unanswered, []string{"b"}}, {"a", 0, 1, []string{"b", "a"}}, read("b", "a"),
		}, false},
	}
	for _, tt := range tests {
		var ops []porcupine.Operation
		for _, c := range tt.calls {
			op := porcupine.Operation{Input: c.op, Call: c.begun, Return: c.ended, Output: (*link)(nil)}
			if c.ended != unanswered || c.chain != nil {
				after := link{}
				for _, op := range c.chain {
					after = after.append(op)
				}
				op.Output = &after
			}
			if c.ended == unanswered {
				op.Return = never
			}
			ops = append(ops, op)
		}
		if legal := porcupine.CheckOperations(chainModel(link{}), ops); legal != tt.legal {
			t.Errorf("%s: legal: %v, want %v", tt.name, legal, tt.legal)
		}
		if tt.legal {
			continue
		}
		path, err := draw(t.TempDir(), ops)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		page, err := os.ReadFile(path)
		if err != nil || filepath.Ext(path) != ".html" ||
			!strings.Contains(string(page), `a → 1, `) && !strings.Contains(string(page), `b → 1, `) {
			t.Errorf("%s: the page of %d bytes shows no operation, %v", tt.name, len(page), err)
		}
	}
}

// A journal and a chain are converted to operations. Answered calls of clients have the output that
// the client received. All other operations have no end.
func TestOperationsOfAProcess(t *testing.T) {
	t.Parallel()
	origin := time.Now()
	at := func(n int) time.Time { return origin.Add(time.Duration(n) * time.Second) }
	h := &history{}
	for _, op := range []string{"init", "a timer=1s", "told later", "timer of task 7", "from p2 x notify=p1", "b"} {
		h.last = h.last.append(op)
		h.applied = append(h.applied, appliedOperation{op, h.last})
	}
	answered := func(n int) []byte { return h.applied[n].link.answer(1) }
	entries := []*entry{
		{process: "p1", op: "a timer=1s", begun: at(0), ended: at(1), outcome: acked, answer: answered(1)},
		{process: "p1", op: "told later", notify: true, begun: at(1), ended: at(2), outcome: acked},
		{process: "p1", op: "b", begun: at(5), ended: at(6), outcome: acked, answer: answered(5)},
		{process: "p2", op: "x notify=p1", begun: at(3), ended: at(4), outcome: unknown},
		{process: "p1", op: "never done", begun: at(3), ended: at(4), outcome: unknown},
	}
	check := func(legal bool) {
		t.Helper()
		all, origin := newJournal(entries)
		ops := h.operations("p1", all, origin)
		if got := porcupine.CheckOperations(chainModel(link{}), ops); got != legal {
			t.Errorf("legal: %v, want %v: %v", got, legal, ops)
		}
		if len(ops) != len(h.applied)+1 {
			t.Errorf("%d operations of %d and the end", len(ops), len(h.applied))
		}
	}
	check(true)
	entries[2].begun, entries[2].ended = at(-3), at(-2) // b, before the operation that precedes it in the chain
	check(false)
	entries[2].begun, entries[2].ended = at(5), at(6)
	// The sender of a message begins after the response to an operation that follows the message in
	// the chain.
	entries[3].begun = at(7)
	check(false)
	entries[3].begun = at(3)
	entries[2].answer = answered(4)
	check(false)
}
