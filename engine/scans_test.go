package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/progressor-engine/progressor/storage"
)

func TestScanBound(t *testing.T) {
	t.Parallel()
	b := scanBound{rows: maxScanRows}
	names := []string{"a", "b", "c"}
	for last, want := range map[string]string{
		"": "[a b c]", "a": "[b c a]", "bb": "[c a b]", "c": "[a b c]", "d": "[a b c]",
	} {
		b.last = last
		if got := fmt.Sprint(b.rotate(names)); got != want {
			t.Errorf("after %q: %s, want %s", last, got, want)
		}
	}
	b.done(fmt.Errorf("scan: %w", context.DeadlineExceeded))
	if b.rows != maxScanRows/2 {
		t.Errorf("%d rows after a scan that took too long", b.rows)
	}
	if b.done(errors.New("other")); b.rows != maxScanRows/2 {
		t.Errorf("%d rows after another error", b.rows)
	}
	for range 20 {
		b.done(context.DeadlineExceeded)
	}
	if b.rows != 1 {
		t.Errorf("%d rows after many scans that took too long", b.rows)
	}
	for range 100 {
		b.done(nil)
	}
	if b.rows != maxScanRows {
		t.Errorf("%d rows after many short scans", b.rows)
	}
}

// After a scan that was cut at its byte limit, the next scan claims at most the larger of
// minCutRows and twice the number of tasks of the cut scan. The bound then grows with each scan.
func TestScanOfLargeTasksHasLessRoom(t *testing.T) {
	t.Parallel()
	room := []storage.ClaimLimit{{Namespace: "n", Max: 200}}
	for claimed, want := range map[int]int{2: minCutRows, 100: 200} {
		b := scanBound{rows: maxScanRows}
		if b.scanned(room, []int{200 - claimed}, true); b.rows != want {
			t.Errorf("%d rows after a scan that was cut after %d tasks, want %d", b.rows, claimed, want)
		}
		if b.done(nil); b.rows <= want {
			t.Errorf("%d rows after another scan", b.rows)
		}
		b.rows = 10
		if b.scanned(room, []int{0}, true); b.rows != 10 {
			t.Errorf("a cut scan has raised the bound to %d rows", b.rows)
		}
	}
	b := scanBound{rows: maxScanRows}
	if b.scanned(room, []int{199}, false); b.rows != maxScanRows {
		t.Errorf("%d rows after a complete scan", b.rows)
	}
}

// A scan claims no more than its bound in all namespaces together, and the next scan begins with
// the namespaces that were left out.
func TestRoomsAreBounded(t *testing.T) {
	t.Parallel()
	e := bare()
	e.recordHeartbeat(e.age())
	all := map[string]*namespace{}
	var names []string
	for n := range 1000 {
		name := fmt.Sprintf("n%03d", n)
		p, _, _ := newSlots(300)
		all[name] = &namespace{name: name, slots: p, policies: policies{lease: 1}}
		names = append(names, name)
	}
	e.registry.byName.Store(&all)
	bound := scanBound{rows: maxScanRows}
	seen := map[string]int{}
	for range 2 {
		taken := 0
		r := e.newScanLimits(&bound, names, func(ns *namespace, n int) int { return ns.slots.takeStored(n) })
		for _, limit := range r.limits {
			taken += limit.Max
			seen[limit.Namespace]++
		}
		if taken > maxScanRows || len(r.limits)+len(r.postponed) != len(names) {
			t.Errorf("%d slots in %d namespaces, %d postponed", taken, len(r.limits), len(r.postponed))
		}
	}
	if len(seen) != len(names) {
		t.Errorf("two scans had room for %d namespaces", len(seen))
	}
}

// A namespace without a backlog goes first and gets room for a burst, even if 1,000 others have
// backlogs. The others still take turns.
func TestNamespacesWithoutBacklogGoFirst(t *testing.T) {
	t.Parallel()
	const burst = 20
	b := scanBound{rows: maxScanRows}
	b.scanned([]storage.ClaimLimit{{Namespace: "small", Max: 1}}, []int{1}, false)
	var names []string
	for n := range 1000 {
		names = append(names, fmt.Sprintf("n%03d", n))
	}
	names = append(names, "small")
	claimed := map[string]int{}
	for scan := range 1000 {
		var limits []storage.ClaimLimit
		var left []int
		total := 0
		b.divide(names, func(name string, n int) int {
			got := n
			if name == "small" {
				if got = min(n, burst); scan%2 > 0 {
					got = 0 // the namespace has tasks only in every second scan
				}
			}
			limits, left = append(limits, storage.ClaimLimit{Namespace: name, Max: n}), append(left, n-got)
			claimed[name] += got
			total += n
			return n
		})
		if total > maxScanRows {
			t.Fatalf("a scan has room for %d tasks", total)
		}
		b.scanned(limits, left, false)
		if scan%2 == 0 && claimed["small"] != burst*(scan/2+1) {
			t.Fatalf("scan %d: %d tasks of the namespace without a backlog", scan, claimed["small"])
		}
	}
	least, most := claimed["n000"], 0
	for name, n := range claimed {
		if name != "small" {
			least, most = min(least, n), max(most, n)
		}
	}
	if len(claimed) != len(names) || most-least > 1 {
		t.Errorf("namespaces with backlogs got %d to %d tasks", least, most)
	}
}

// A namespace whose scans always claim as many tasks as they have room for does not go first.
func TestBacklogsDoNotGoFirst(t *testing.T) {
	t.Parallel()
	b := scanBound{rows: maxScanRows}
	room := []storage.ClaimLimit{{Namespace: "n", Max: scanLimit}}
	if !b.known["n"].backlogged() {
		t.Error("an unknown namespace comes first")
	}
	b.scanned(room, []int{1}, false)
	if b.known["n"].backlogged() {
		t.Error("a namespace without a backlog does not go first")
	}
	if b.scanned(room, []int{1}, true); b.known["n"].emptied != 1 {
		t.Error("a cut scan counts as one that found all tasks")
	}
	if b.scanned(room, []int{0}, false); !b.known["n"].backlogged() {
		t.Error("a namespace with a backlog comes first")
	}
}

// While namespaces are created and deleted, scans forget the deleted ones.
func TestScansForgetNamespaces(t *testing.T) {
	t.Parallel()
	e := bare()
	e.recordHeartbeat(e.age())
	bound := scanBound{rows: maxScanRows}
	for round := range 20 {
		all := map[string]*namespace{}
		var names []string
		for n := range 50 {
			name := fmt.Sprintf("n%02d-%02d", round, n)
			p, _, _ := newSlots(10)
			all[name] = &namespace{name: name, slots: p, policies: policies{lease: 1}}
			names = append(names, name)
		}
		e.registry.byName.Store(&all)
		r := e.newScanLimits(&bound, names, func(ns *namespace, n int) int { return ns.slots.takeStored(n) })
		left := make([]int, len(r.limits))
		bound.scanned(r.limits, left, false)
	}
	if got := len(bound.known); got < 50 || got > 100 {
		t.Errorf("%d of 50 namespaces are known", got)
	}
	if r := e.newScanLimits(&bound, []string{"n19-00", "nowhere"}, func(*namespace, int) int {
		return 1
	}); len(r.limits) != 1 || len(bound.known) != 50 {
		t.Errorf("%d limits, %d namespaces are known", len(r.limits), len(bound.known))
	}
}
