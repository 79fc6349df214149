// Package traps contains durable functions with mistakes. The comments are the expected messages.
package traps

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/progressor-engine/progressor/processor/durable"
)

type order struct {
	Items  []string
	Prices map[string]int
	Total  int
}

type shop struct {
	mu    sync.Mutex
	count int
}

var _ = durable.Func("order", func(ctx durable.Ctx, in order) (int, error) {
	began := time.Now()                  // want `time.Now returns another time in a replay: use durable.Now`
	if time.Since(began) > time.Second { // want `time.Since returns another duration in a replay`
		time.Sleep(time.Second) // want `time.Sleep waits again in each replay: use durable.Sleep`
	}
	func() {
		<-time.After(1) // want `a receive from a channel waits again` `time.After starts again in each replay: use durable.After`
	}()
	return rand.IntN(6), nil // want `rand.IntN returns another number in a replay: use durable.Rand`
})

func random(ctx durable.Ctx) (string, error) {
	_ = crand.Text()   // want `rand.Text returns another number in a replay: use durable.Rand or durable.UUID`
	id := uuid.New()   // want `uuid.New returns another ID in a replay: use durable.UUID`
	defer rand.Perm(3) // want `rand.Perm returns another number`
	slices.SortFunc([]string{"a"}, func(a, b string) int {
		return rand.IntN(3) // want `rand.IntN returns another number`
	})
	return id.String(), nil
}

func (s *shop) goroutines(ctx durable.Ctx, in order) {
	go durable.Sleep(ctx, "a", 1) // want `durable.Sleep fails in another goroutine: use durable.Each`
	go s.waits(ctx, nil)          // want `s.waits fails in another goroutine`
	timer := durable.After(ctx, "b", 1)
	go func() {
		timer.Wait() // want `timer.Wait fails in another goroutine`
	}()
	var all sync.WaitGroup
	all.Go(func() {
		durable.Publish(ctx, 1) // want `durable.Publish fails in another goroutine`
	})
	all.Wait() // want `sync.WaitGroup.Wait waits for goroutines, which a replay starts again: use durable.Each`
	var group errgroup.Group
	send := func() error {
		_ = ctx.Process() // want `ctx.Process fails in another goroutine`
		return nil
	}
	group.Go(send)
	_ = group.Wait() // want `errgroup.Group.Wait waits for goroutines`
}

func (s *shop) waits(ctx durable.Ctx, c chan int) {
	select { // want `select can choose another case in a replay: use durable.First`
	case n := <-c:
		time.Sleep(time.Duration(n)) // want `time.Sleep waits again`
	default:
	}
	c <- 1        // want `a send to a channel is repeated in each replay`
	for range c { // want `a loop over a channel waits again in each replay: use durable.Calls`
	}
	s.mu.Lock() // want `sync.Mutex.Lock can block the task`
	defer s.mu.Unlock()
}

func bodies(ctx durable.Ctx, in order) error {
	var id, name string
	var found order
	prices := map[string]int{}
	_, err := durable.Step(ctx, "a", func(context.Context) (int, error) {
		durable.Sleep(ctx, "b", 1) // want `durable.Sleep fails in the body of a step: call it in the function`
		id = "1"                   // want `the body of a step assigns id, but a replay does not run it: return the value instead`
		in.Total++                 // want `the body of a step assigns in`
		var all sync.WaitGroup
		all.Go(func() {
			name = "y"        // want `the body of a step assigns name`
			_ = ctx.Process() // want `ctx.Process fails in the body of a step`
		})
		all.Wait()
		prices["tea"] = 1                     // want `the body of a step assigns prices`
		return 0, json.Unmarshal(nil, &found) // want `the body of a step assigns found`
	}, durable.Undo(func(context.Context, int) error {
		durable.Publish(ctx, id) // want `durable.Publish fails in an undo`
		return nil
	}))
	body := func(context.Context) error {
		name = "x" // want `the body of a step assigns name`
		return nil
	}
	err = durable.Run(ctx, "c", body)
	calls := durable.Calls(ctx, "pay", durable.Accept(func(n int) (int, error) {
		in.Total = n                          // want `Accept assigns in, but a replay does not run it: assign it after Next instead`
		return durable.Rand(ctx, "d", n), nil // want `durable.Rand fails in Accept`
	}))
	_ = calls.Next()
	_, _ = id, name
	return err
}

func transactions(ctx durable.Ctx, db durable.TxBeginner) (seat int, err error) {
	err = durable.RunTx(ctx, "a", db, func(context.Context, pgx.Tx) error {
		seat = 7 // want `the body of a step assigns seat, but a replay does not run it: return the value instead`
		return nil
	})
	_, err = durable.Tx(ctx, "b", db, func(c context.Context, tx pgx.Tx) (int, error) {
		durable.Sleep(ctx, "c", 1)                          // want `durable.Sleep fails in the body of a step`
		return 1, tx.QueryRow(c, "SELECT seat").Scan(&seat) // want `the body of a step assigns seat`
	}, durable.UndoTx(db, func(context.Context, pgx.Tx, int) error {
		durable.Publish(ctx, seat) // want `durable.Publish fails in an undo`
		return nil
	}))
	return seat, err
}

func branches(ctx durable.Ctx, in order) error {
	total := 0
	_, err := durable.Each(ctx, "item", in.Items, func(branch durable.Ctx, item string) (int, error) {
		total += len(item)                                            // want `a branch of Each assigns total, but the order of branches differs in a replay`
		_ = time.Now()                                                // want `time.Now returns another time`
		return 0, durable.Run(ctx, "a", func(context.Context) error { // want `the Ctx ctx belongs to another function: use the Ctx of this one`
			return nil
		})
	})
	return err
}

func unsorted(ctx durable.Ctx, in order) error {
	for item := range in.Prices { // want `durable.Run is called in the order of a map, which differs in a replay: sort the keys`
		if err := durable.Run(ctx, "a", func(context.Context) error { println(item); return nil }); err != nil {
			return err
		}
	}
	for price := range maps.Values(in.Prices) { // want `durable.Run is called in the order of a map`
		_ = durable.Run(ctx, fmt.Sprint("c-", price), func(context.Context) error { return nil })
	}
	for _, item := range slices.Collect(maps.Keys(in.Prices)) { // want `charge is called in the order of a map`
		charge(ctx, item)
	}
	_, err := durable.Each(ctx, "b", slices.Collect(maps.Keys(in.Prices)), charge) // want `the order of a map differs in a replay: sort the items`
	return err
}

func charge(ctx durable.Ctx, item string) (int, error) { return 0, nil }
