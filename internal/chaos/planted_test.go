//go:build linux

package chaos

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The check detects a message that was lost, duplicated or invented, and a cancel that was
// acknowledged but not executed.
func TestDelivered(t *testing.T) {
	t.Parallel()
	notify, startEnding := "c1 notify=p2", "c2 start-ending=child-a"
	start, cancel := "c3 start=child-b", "c4 cancel=child-b"
	good := func() map[string][]string {
		return map[string][]string{
			"p1":      {"init", notify, startEnding, start, "end of p1 " + startEnding, cancel, "end of p1 " + start},
			"p2":      {"init", "from p1 " + notify},
			"child-a": {startedToEnd}, "child-b": {started, cancelOp},
		}
	}
	statuses := func() map[string]string { return map[string]string{"child-a": "COMPLETED", "child-b": "CANCELLED"} }
	tests := []struct {
		name  string
		plant func(chains map[string][]string, statuses map[string]string)
		want  string // part of the expected defect; "" if there is none
	}{
		{"no defect", func(map[string][]string, map[string]string) {}, ""},
		{"a message is lost", func(c map[string][]string, _ map[string]string) { c["p2"] = c["p2"][:1] },
			"p2: from p1 c1 notify=p2 was sent but not executed (1 missing)"},
		{"a message was delivered twice",
			func(c map[string][]string, _ map[string]string) { c["p2"] = append(c["p2"], c["p2"][1]) },
			"p2: from p1 c1 notify=p2 was executed more often than it was sent (1 too many)"},
		{"a message of a result that was not stored",
			func(c map[string][]string, _ map[string]string) { c["p1"] = slices.Delete(c["p1"], 1, 2) },
			"p2: from p1 c1 notify=p2 was executed more often than it was sent (1 too many)"},
		{"a child is missing", func(c map[string][]string, _ map[string]string) { delete(c, "child-a") },
			"child-a: started to end was sent but not executed (1 missing)"},
		{"a parent was not notified", func(c map[string][]string, _ map[string]string) { c["p1"] = c["p1"][:6] },
			"p1: end of p1 c3 start=child-b was sent but not executed (1 missing)"},
		{"a child did not end", func(_ map[string][]string, s map[string]string) { s["child-a"] = "RUNNING" },
			"child-a, which ends at once, is RUNNING"},
		{"a child was not cancelled", func(_ map[string][]string, s map[string]string) { s["child-b"] = "RUNNING" },
			"child-b, whose cancel was acknowledged, is RUNNING"},
	}
	for _, tt := range tests {
		chains, are := good(), statuses()
		tt.plant(chains, are)
		histories := map[string]*history{}
		for process, ops := range chains {
			histories[process] = &history{}
			for _, op := range ops {
				histories[process].applied = append(histories[process].applied, appliedOperation{op: op})
			}
		}
		counts, wrong := delivered(histories, are, nil)
		if tt.want == "" && (len(wrong) > 0 || counts != deliveries{delivered: 1, started: 2, cancelled: 1, ends: 2}) {
			t.Errorf("%s: %+v, %q", tt.name, counts, wrong)
		}
		if tt.want != "" && !strings.Contains(strings.Join(wrong, "\n"), tt.want) {
			t.Errorf("%s: found %q, want %q", tt.name, wrong, tt.want)
		}
	}
	if _, wrong := delivered(nil, map[string]string{"child-c": "RUNNING"}, []string{"child-c"}); len(wrong) != 1 {
		t.Errorf("a cancel that was acknowledged to a client: found %q", wrong)
	}
}

// The check detects a call that a suspended process has executed.
func TestCallsWhileSuspended(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(n int) time.Time { return now.Add(time.Duration(n) * time.Second) }
	windows := []window{{process: "p1", from: at(10), to: at(20)}}
	entries := []*entry{
		{process: "p1", op: "before", begun: at(9), ended: at(11), outcome: acked},
		{process: "p1", op: "rejected", begun: at(11), ended: at(12)},
		{process: "p1", op: "done after it", begun: at(12), ended: at(21), outcome: acked},
		{process: "p2", op: "another process", begun: at(12), ended: at(13), outcome: acked},
	}
	if n, wrong := callsWhileSuspended(windows, entries); n != 1 || len(wrong) > 0 {
		t.Errorf("%d rejected, %q", n, wrong)
	}
	entries = append(entries, &entry{process: "p1", op: "done", begun: at(12), ended: at(13), outcome: acked})
	n, wrong := callsWhileSuspended(windows, entries)
	if n != 1 || len(wrong) != 1 || !strings.HasPrefix(wrong[0], "done of p1") {
		t.Errorf("%d rejected, %q", n, wrong)
	}
}

// The check detects a second live attempt of a task. Attempts that have ended do not count.
func TestRepeatedTasks(t *testing.T) {
	t.Parallel()
	c := &chain{}
	first, other := c.begin("1"), c.begin("2")
	if n := c.repeatedTasks(); n != 0 {
		t.Errorf("%d tasks have two attempts, want none", n)
	}
	second := c.begin("1")
	if n := c.repeatedTasks(); n != 1 {
		t.Errorf("%d tasks have two attempts, want 1", n)
	}
	first()
	if n := c.repeatedTasks(); n != 0 {
		t.Errorf("%d tasks have two attempts after one has ended", n)
	}
	second()
	other()
	if len(c.live) != 0 {
		t.Errorf("ended attempts were kept: %v", c.live)
	}
}

// The check detects lost notifications of a queue, lost tasks of a backlog, and remaining rows of a
// removed process.
func TestTenantDefects(t *testing.T) {
	t.Parallel()
	w := &tenants{queues: []queue{{process: "q0", n: 10}, {process: "q1", n: 20, removed: true}}, backlog: 30}
	for name, tt := range map[string]struct {
		plant func(rows *tenantRows)
		want  string
	}{
		"no defect": {func(*tenantRows) {}, ""},
		"a notification is lost": {func(r *tenantRows) { r.ended["q0"] = 9 },
			"9 of the 10 notifications of q0 have ended"},
		"a notification ended twice": {func(r *tenantRows) { r.ended["q0"] = 11 },
			"11 of the 10 notifications of q0 have ended"},
		"a row of a removed process is left": {func(r *tenantRows) { r.left["q1"] = 1 },
			"q1 was removed, but 1 of its rows are left"},
		"a row of a cancelled process is left": {func(r *tenantRows) { r.left["q0"] = 2 },
			"q0 was removed, but 2 of its rows are left"},
		"a timer is lost": {func(r *tenantRows) { r.backlog = 29 },
			"29 of the 30 tasks of the backlog have finished"},
	} {
		rows := tenantRows{ended: map[string]int{"q0": 10}, left: map[string]int{}, backlog: 30}
		tt.plant(&rows)
		if got := strings.Join(w.defects(rows), "; "); got != tt.want {
			t.Errorf("%s: found %q, want %q", name, got, tt.want)
		}
	}
}
