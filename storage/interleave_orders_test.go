package storage_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// orders are what operators, and the collector, do to a process.
var orders = []transaction{
	{"suspend", false, func(s *storage.Store, id string, _ *storage.Claim) (string, error) {
		return met(s.SuspendProcess(key(id), "")), nil
	}},
	{"resume", false, func(s *storage.Store, id string, _ *storage.Claim) (string, error) {
		return met(s.ResumeProcess(key(id))), nil
	}},
	{"cancel", false, func(s *storage.Store, id string, _ *storage.Claim) (string, error) {
		state, err := s.CancelProcess(storage.Cancel{Key: key(id), Grace: time.Hour})
		return fmt.Sprintf("%+v %s", state, met(err)), nil
	}},
	{"end an overdue cancel", false, func(s *storage.Store, id string, _ *storage.Claim) (string, error) {
		ended, err := s.EndOverdueCancel(key(id))
		return fmt.Sprint("ended:", ended), err
	}},
}

// Whatever an operator orders while a node does something to the process, in whichever order they get it: it comes out as if the
// first had been done, and then the second.
func TestOrdersMeetTransactions(t *testing.T) {
	t.Parallel()
	with := slices.Clone(orders)
	for _, tr := range transactions {
		if !slices.Contains([]string{"start", "repeat a call", "repair without processor"}, tr.name) {
			with = append(with, tr)
		}
	}
	// A CANCEL task does not finish as others do: its end is that of its process.
	last := ends("say the last word", storage.Cancelled, events("end"))
	finishes := []string{"finish", "finish and go on", "give the place away"}
	for _, situation := range []struct {
		name string
		make func(b *bench, id string) *storage.Claim
	}{
		{"at work, a call waits", func(b *bench, id string) *storage.Claim {
			b.process(id, timer(time.Hour))
			c := b.claim(id)
			b.call(id)
			return c
		}},
		{"new, a call waits", func(b *bench, id string) *storage.Claim {
			c := b.start(id)
			b.call(id)
			return c
		}},
		{"in repair", func(b *bench, id string) *storage.Claim { b.wreck(id); return b.repair(id).Claim }},
		{"held at work, a call waits", func(b *bench, id string) *storage.Claim {
			b.process(id, timer(time.Hour))
			c := b.claim(id)
			b.call(id)
			b.suspend(id)
			return c
		}},
		{"its cancel is overdue", func(b *bench, id string) *storage.Claim {
			b.process(id)
			c := b.claim(id)
			b.call(id)
			b.cancelFor(id, 0)
			return c
		}},
		{"its CANCEL task runs", func(b *bench, id string) *storage.Claim {
			b.process(id)
			c := b.claim(id)
			b.call(id)
			b.cancelFor(id, 0)
			return b.save(end(c, storage.Finished)).Next
		}},
	} {
		t.Run(situation.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			other := open(t, b.dsn, storage.Config{})
			with := append(slices.Clone(with), last)
			if situation.name == "its CANCEL task runs" {
				with = slices.DeleteFunc(with, func(tr transaction) bool { return slices.Contains(finishes, tr.name) })
			} else {
				with = with[:len(with)-1]
			}
			for a, order := range orders {
				for z, tr := range with {
					b.meet(other, situation.make, fmt.Sprintf("%d-%d", a, z), order, tr)
					b.meet(other, situation.make, fmt.Sprintf("%d-%d-", a, z), tr, order)
				}
			}
		})
	}
}
