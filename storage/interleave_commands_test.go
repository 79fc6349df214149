package storage_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// The end of an overdue cancel, which every node may request, and the result of a running CANCEL
// task run concurrently with every other transaction.
func TestOverdueCancelMeetsTransactions(t *testing.T) {
	t.Parallel()
	last := ends("finish the CANCEL task", storage.Cancelled, events("end"))
	called := func(b *bench, id string) *storage.Claim {
		b.process(id, timer(time.Hour))
		c := b.claim(id)
		b.call(id)
		b.cancelFor(id, 0)
		return c
	}
	for _, situation := range []struct {
		name  string
		make  func(b *bench, id string) *storage.Claim
		meets []transaction // each of these meets every other transaction, in both orders
	}{
		{"a call runs", called, []transaction{endOverdueCancel}},
		{"INIT runs", func(b *bench, id string) *storage.Claim {
			c := b.start(id)
			b.cancelFor(id, 0)
			return c
		}, []transaction{endOverdueCancel}},
		{"suspended", func(b *bench, id string) *storage.Claim {
			c := called(b, id)
			b.suspend(id)
			return c
		}, []transaction{endOverdueCancel}},
		{"the CANCEL task runs", func(b *bench, id string) *storage.Claim {
			return b.save(end(called(b, id), storage.Finished)).Next
		}, []transaction{endOverdueCancel, last}},
	} {
		t.Run(situation.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.WithGeneralStatements().WaitForLocks()
			other := open(t, b.dsn, storage.Config{}).WithGeneralStatements().WaitForLocks()
			with := append(slices.Clone(transactions), situation.meets...)
			if len(situation.meets) == 2 { // the end of a CANCEL task ends its process
				with = slices.DeleteFunc(with, func(tr transaction) bool {
					return slices.Contains([]string{"finish", "finish and continue", "release the slot"}, tr.name)
				})
			}
			for a, one := range situation.meets {
				for z, tr := range with {
					b.meet(other, situation.make, fmt.Sprintf("%d-%d", a, z), one, tr)
					b.meet(other, situation.make, fmt.Sprintf("%d-%d-", a, z), tr, one)
				}
			}
		})
	}
}
