package storage_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// A flush that takes too long is split until the slow item is found. That item fails with
// ErrUnavailable, and all others are stored. The slow item is not sent again together with the
// others.
func TestFlushThatTimesOutIsHalved(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]string{
		"statement timeout": "RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014'",
		"flush timeout":     "PERFORM pg_sleep(600)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.process("first")
			b.exec(`CREATE SEQUENCE attempts_at_slow`)
			b.exec(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				PERFORM nextval('progressor.attempts_at_slow'); ` + slow + `; RETURN NEW; END $$`)
			b.exec(`CREATE TRIGGER slow BEFORE INSERT ON processes FOR EACH ROW
				WHEN (NEW.process_id = 'slow') EXECUTE FUNCTION slow()`)
			registry := prometheus.NewRegistry()
			s := open(t, b.dsn, storage.Config{
				Lanes: 1, Registerer: registry,
			}).WaitForLocks().FlushTimeout(5 * time.Second)
			release := b.foreign("SELECT FROM processes WHERE process_id = 'first' FOR UPDATE")
			first := later(func() (storage.Prepared, error) {
				return s.PrepareCall(call("first", keyed("first", "x")))
			})
			const others = 15
			started := make([]func() (storage.Prepared, error), 0, others)
			for i := range others {
				id := fmt.Sprint("other", i)
				started = append(started, later(func() (storage.Prepared, error) {
					return s.PrepareInit(newInit(id, keyedInit(id, "x")))
				}))
			}
			alone := later(func() (storage.Prepared, error) {
				return s.PrepareInit(newInit("slow", keyedInit("slow", "x")))
			})
			b.until("all are in progress", func() bool { return s.Pending() == others+2 })
			release()
			must(t, 0, second(first()))
			for _, f := range started {
				must(t, 0, second(f()))
			}
			if _, err := alone(); !errors.Is(err, process.ErrUnavailable) {
				t.Errorf("the slow item: %v", err)
			}
			// 17 items are halved five times.
			if n := ask[int](b, "SELECT last_value FROM attempts_at_slow"); n > 8 {
				t.Errorf("the slow item was sent %d times", n)
			}
			equal(t, "timeouts", counter(t, registry, "progressor_flush_timeouts_total"), 1)
		})
	}
}
