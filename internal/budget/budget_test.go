package budget

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// Holders get their bytes in the order of their requests. One owner can have at most half of all
// bytes. Requests of an owner that has reached this limit do not delay those of other owners.
func TestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(100)
		take := func(h *Holder, bytes int64) <-chan struct{} {
			done := make(chan struct{})
			go func() {
				if err := h.Take(t.Context(), Free+bytes); err != nil {
					t.Error(err)
				}
				close(done)
			}()
			synctest.Wait()
			return done
		}
		has := func(done <-chan struct{}) bool {
			synctest.Wait()
			select {
			case <-done:
				return true
			default:
				return false
			}
		}
		first, second, third, other := b.Of("a"), b.Of("a"), b.Of("b"), b.Of("c")
		if !has(take(first, 30)) || !has(take(first, 20)) {
			t.Error("a holder waits for a free part, or for its own")
		}
		waiting := take(second, 30)
		if has(waiting) {
			t.Error("an owner has more than half")
		}
		if !has(take(third, 40)) {
			t.Error("an owner waits behind an owner that has reached its limit")
		}
		behind := take(other, 40)
		if has(behind) || has(take(b.Of("d"), 10)) {
			t.Error("a holder got a part that is not free, or overtook another one")
		}
		first.Keep(Free + 10)
		if !has(waiting) || has(behind) {
			t.Error("the free part went to another holder")
		}
		third.Release()
		if !has(behind) {
			t.Error("a holder waits for a free part")
		}
		if huge := take(b.Of("e"), 1000); has(huge) {
			t.Error("the budget is exceeded")
		} else {
			first.Release()
			second.Release()
			other.Release()
			if !has(huge) {
				t.Error("more than half of the budget is never available")
			}
		}
	})
}

// A holder that stops waiting leaves nothing behind. A nil Budget has no limit.
func TestEndOfAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(100)
		first, second, third := b.Of("a"), b.Of("a"), b.Of("a")
		if err := first.Take(t.Context(), Free+50); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- second.Take(ctx, Free+50) }()
		synctest.Wait()
		late := errors.New("late")
		cancel(late)
		if err := <-ended; !errors.Is(err, late) || second.Has() {
			t.Errorf("%v", err)
		}
		first.Release()
		if err := third.Take(t.Context(), Free+50); err != nil || !third.Has() {
			t.Error(err)
		}
		third.Release()
		if b.used != 0 || len(b.byOwner) != 0 || len(b.waiting) != 0 {
			t.Errorf("%+v", b)
		}
		var none *Budget
		if h := none.Of("a"); h.Take(t.Context(), 1<<40) != nil || h.Has() {
			t.Error("a nil Budget has a limit")
		}
		From(t.Context()).Release()
	})
}
