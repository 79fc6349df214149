package engine_test

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestSmokeRate(t *testing.T) {
	dsn := os.Getenv("SMOKE_DSN")
	if dsn == "" {
		dsn = storagetest.DSN(t)
	} else if err := storage.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	n := start(t, dsn, processor.BenchNoop())
	n.put(t, &progressorv1.Namespace{Namespace: "ns", HistoryMode: progressorv1.HistoryMode_HISTORY_MODE_NONE})
	var last int64
	args := make([]byte, 200)
	for _, clients := range []int{1, 128, 512} {
		for _, what := range []string{"start", "call"} {
			var ops atomic.Int64
			var wg sync.WaitGroup
			if what == "start" {
				last = time.Now().Add(3 * time.Second).Unix()
			}
			end := time.Now().Add(3 * time.Second)
			for c := range clients {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for i := 0; time.Now().Before(end); i++ {
						var err error
						if what == "start" {
							_, err = n.Start(t.Context(), engine.StartParams{Key: key(fmt.Sprintf("s%d-%d-%d-%d", clients, c, i, end.Unix())), Args: args})
						} else {
							_, err = n.Call(t.Context(), engine.CallParams{Key: key(fmt.Sprintf("s%d-%d-%d-%d", clients, c, i%10, last)), Args: args})
						}
						if err != nil {
							t.Error(err)
							return
						}
						ops.Add(1)
					}
				}()
			}
			wg.Wait()
			t.Logf("%d clients %s: %d/s", clients, what, ops.Load()/3)
		}
	}
}
