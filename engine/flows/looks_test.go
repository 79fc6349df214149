package flows

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/progressor-engine/progressor/storage/flows"
)

// Who asks while a read goes on is not answered by that one, but by the next, together with all others.
func TestLooksAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		version := int32(0)
		goOn := make(chan struct{})
		l := &looks{read: func(context.Context, lookKey) (flows.Template, error) {
			version++
			seen := flows.Template{Version: version}
			<-goOn
			return seen, nil
		}}
		answers := make(chan int32, 100)
		ask := func(n int) {
			for range n {
				go func() {
					row, err := l.at(t.Context(), lookKey{"a", "t", 0})
					if err != nil {
						t.Error(err)
					}
					answers <- row.Version
				}()
			}
			synctest.Wait()
		}
		ask(1)
		ask(50)
		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.at(impatient, lookKey{"a", "t", 0}); !errors.Is(err, context.Canceled) {
			t.Errorf("who does not wait any more: %v", err)
		}
		for read, n := range []int{1, 50} {
			goOn <- struct{}{}
			for range n {
				if got := <-answers; got != int32(read+1) {
					t.Errorf("read %d is told to one who waits for read %d", got, read+1)
				}
			}
		}
		synctest.Wait()
		if version != 2 || len(l.next) != 0 || len(l.busy) != 0 {
			t.Errorf("%d reads, want 2; left are %d and %d", version, len(l.next), len(l.busy))
		}
	})
}
