// Package correct contains durable functions without mistakes.
package correct

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/processor/durable"
)

type order struct {
	Items  []string
	Prices map[string]int
}

type shop struct {
	mu    sync.Mutex
	count int
	cache map[string]int
}

func newOrders(s *shop) *durable.Function[order, int] {
	runs := 0
	return durable.Func("order", func(ctx durable.Ctx, in order) (int, error) {
		n, err := durable.Step(ctx, "a", func(c context.Context) (int, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.count++ // the service is not a part of the function
			s.cache["a"] = 1
			runs++
			found := 0
			found++
			return found, wait(c, time.After(time.Second))
		})
		if err != nil {
			return 0, err
		}
		n++ // the function may change its variables
		return n, nil
	})
}

func wait(c context.Context, timer <-chan time.Time) error {
	select {
	case <-c.Done():
		return c.Err()
	case <-timer:
		return nil
	}
}

func (s *shop) bodies(ctx durable.Ctx, in order) error {
	random := rand.New(rand.NewPCG(uint64(durable.Rand(ctx, "seed", 99)), 0))
	_ = random.IntN(6)
	_ = uuid.NewSHA1(uuid.Nil, []byte("a"))
	later := durable.Now(ctx, "now").Add(time.Hour)
	if later.After(time.Unix(0, 0)) {
		durable.Sleep(ctx, "wait", time.Hour)
	}
	pause := func() { time.Sleep(time.Millisecond) }
	send := func(context.Context) error { // a helper runs it in a step
		pause()
		return nil
	}
	if err := s.logged(ctx, "send", send); err != nil {
		return err
	}
	if err := durable.Run(ctx, "wrapped", wrapped(func() { time.Sleep(1) })); err != nil {
		return err
	}
	return s.timed(ctx, func() { _ = time.Now() })
}

func wrapped(f func()) func(context.Context) error {
	return func(context.Context) error { f(); return nil }
}

func (s *shop) logged(ctx durable.Ctx, name string, body func(context.Context) error) error {
	return durable.Run(ctx, name, func(c context.Context) error {
		var all sync.WaitGroup
		all.Go(func() { s.mu.Lock() })
		all.Wait()
		s.count++ // the receiver is also a service
		return body(c)
	})
}

func (s *shop) timed(ctx durable.Ctx, f func()) error {
	return durable.Run(ctx, "timed", func(context.Context) error { f(); return nil })
}

func (s *shop) book(ctx durable.Ctx, db durable.TxBeginner) (int, error) {
	return durable.Tx(ctx, "book", db, func(c context.Context, tx pgx.Tx) (seat int, err error) {
		at := time.Now()
		s.count++
		err = tx.QueryRow(c, "SELECT seat WHERE day = $1", at).Scan(&seat)
		return seat, err
	}, durable.UndoTx(db, func(c context.Context, tx pgx.Tx, seat int) error {
		_, err := tx.Exec(c, "DELETE", time.Now(), seat)
		return err
	}))
}

func (s *shop) loops(ctx durable.Ctx, in order) error {
	total := 0
	for _, price := range in.Prices {
		total += price
	}
	for _, item := range slices.Sorted(maps.Keys(in.Prices)) {
		if err := durable.Run(ctx, "a", func(context.Context) error { return nil }); err != nil {
			return fmt.Errorf("item %s: %w", item, err)
		}
	}
	for _, item := range slices.Collect(maps.Keys(in.Prices)) {
		var name = "d-" + item
		other, _, _ := strings.Cut("e-"+item, "/")
		_ = durable.Run(ctx, name, func(context.Context) error { return nil })
		_ = durable.Run(ctx, other, func(context.Context) error { return nil })
	}
	for item := range in.Prices { // the journal finds each step by its name, in any order
		_ = durable.Run(ctx, "b-"+item, func(context.Context) error { return nil })
		name := fmt.Sprintf("c-%s", item)
		_, _ = durable.Each(ctx, name, in.Items, func(ctx durable.Ctx, item string) (int, error) {
			return durable.Rand(ctx, "count", 6), nil
		})
	}
	counts := make([]int, len(in.Items))
	_, err := durable.Each(ctx, "item", in.Items, func(ctx durable.Ctx, item string) (int, error) {
		count := durable.Rand(ctx, "count", 6)
		counts[slices.Index(in.Items, item)] = count
		return count, nil
	})
	return err
}

// A function without a Ctx is not a durable function.
func elapsed(began time.Time) time.Duration { return time.Since(began) }
