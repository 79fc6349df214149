package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestScanBound(t *testing.T) {
	t.Parallel()
	b := scanBound{rows: maxScanRows}
	names := []string{"a", "b", "c"}
	for last, want := range map[string]string{"": "[a b c]", "a": "[b c a]", "bb": "[c a b]", "c": "[a b c]", "d": "[a b c]"} {
		b.last = last
		if got := fmt.Sprint(b.rotate(names)); got != want {
			t.Errorf("behind %q: %s, want %s", last, got, want)
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
		t.Errorf("%d rows after many quick scans", b.rows)
	}
}

// A scan claims no more than its bound of all namespaces together, and the next scan begins with those left out.
func TestRoomsAreBounded(t *testing.T) {
	t.Parallel()
	e := bare()
	e.beaten(e.age())
	all := map[string]*namespace{}
	var names []string
	for n := range 1000 {
		name := fmt.Sprintf("n%03d", n)
		p, _, _ := newSlots(300)
		all[name] = &namespace{name: name, slots: p, lease: 1}
		names = append(names, name)
	}
	e.registry.byName.Store(&all)
	bound := scanBound{rows: maxScanRows}
	seen := map[string]int{}
	for range 2 {
		taken := 0
		r := e.rooms(&bound, names, func(ns *namespace, n int) int { return ns.slots.takeStored(n) })
		for _, room := range r.rooms {
			taken += room.Places
			seen[room.Namespace]++
		}
		if taken > maxScanRows || len(r.rooms)+len(r.postponed) != len(names) {
			t.Errorf("%d places in %d namespaces, %d postponed", taken, len(r.rooms), len(r.postponed))
		}
	}
	if len(seen) != len(names) {
		t.Errorf("two scans had room for %d namespaces", len(seen))
	}
}
