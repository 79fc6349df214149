package crons_test

import (
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestStateOfNewerVersion checks that a node shows a cron whose state was stored by a newer version
// of the engine, but does not change the cron. The cron continues when the node can read the state
// again.
func TestStateOfNewerVersion(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.create(t, starts("c", never, "complete"))
	replace := func(old, replacement string) {
		t.Helper()
		_, err := n.DB.Exec(t.Context(), `UPDATE processes SET aux_state = decode(replace(encode(aux_state, 'hex'),
			encode(convert_to($1, 'UTF8'), 'hex'), encode(convert_to($2, 'UTF8'), 'hex')), 'hex')
			WHERE process_id = '~cron/c'`, old, replacement)
		if err != nil {
			t.Fatal(err)
		}
	}
	ledger := ""
	for _, novel := range []string{`{"novel":1,"v":1,`, `{"v":2,`} {
		replace(`{"v":1,`, novel)
		n.get(t, "c")
		triggered := make(chan error, 1)
		go func() {
			_, err := n.Trigger(t.Context(), &progressorv1.TriggerCronRequest{Namespace: "ns", CronId: "c"}, kim)
			triggered <- err
		}()
		eventually(t, "the command fails", func() bool {
			return n.Count(t, `SELECT count(*) FROM failed_attempts WHERE process_id = '~cron/c'
				AND reason = 'newer_state'`) > 0
		})
		replace(novel, `{"v":1,`)
		if err := <-triggered; err != nil {
			t.Fatal(err)
		}
		if ledger != "" {
			ledger += ", "
		}
		ledger += "FIRED SUCCESS 1"
		n.awaits(t, "c", ledger) // otherwise the next fire is skipped
		storagetest.Exec(t, n.DB, "DELETE FROM failed_attempts")
	}
}
