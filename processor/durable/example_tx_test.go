package durable_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

type Visit struct {
	Guest string `json:"guest"`
}

// theater has a table of seats in its own database.
type theater struct {
	db     *pgxpool.Pool
	charge func(c context.Context, guest string) error
}

// visit books a seat and then charges the guest. If the charge fails, the seat is free again.
func (t *theater) visit(ctx durable.Ctx, in Visit) (int, error) {
	seat, err := durable.Tx(ctx, "book", t.db, func(c context.Context, tx pgx.Tx) (seat int, err error) {
		err = tx.QueryRow(c, `UPDATE seats SET guest = $1 WHERE number = (SELECT number FROM seats
			WHERE guest IS NULL ORDER BY number FOR UPDATE SKIP LOCKED LIMIT 1)
			RETURNING number`, in.Guest).Scan(&seat)
		if errors.Is(err, pgx.ErrNoRows) {
			return 0, processor.Reject("sold_out", "no seat is free")
		}
		return seat, err
	}, durable.Retry(5, time.Second), durable.UndoTx(t.db, func(c context.Context, tx pgx.Tx, seat int) error {
		_, err := tx.Exec(c, "UPDATE seats SET guest = NULL WHERE number = $1", seat)
		return err
	}))
	if err != nil {
		return 0, err
	}
	return seat, durable.Run(ctx, "charge", func(c context.Context) error { return t.charge(c, in.Guest) })
}

// Wherever the function is killed, a guest gets one seat, or none if the guest cannot pay.
func TestVisit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err   error
		taken int
	}{"paid": {nil, 1}, "not paid": {errors.New("declined"), 0}} {
		t.Run(name, func(t *testing.T) {
			dsn := storagetest.DSN(t)
			db := database(t, dsn)
			durabletest.KillEverywhere(t, func(t *testing.T) processor.Processor {
				db := database(t, dsn) // the connections of a repetition
				for _, sql := range []string{
					"DROP TABLE IF EXISTS seats",
					"CREATE TABLE seats AS SELECT number, NULL::text AS guest FROM generate_series(1, 9) AS number",
				} {
					storagetest.Exec(t, db, sql)
				}
				t.Cleanup(func() {
					check(t, "taken seats", one(t, db, "SELECT count(guest)::text FROM seats"), count(test.taken))
				})
				inn := &theater{db: db, charge: func(context.Context, string) error { return test.err }}
				return durable.Func("visit", inn.visit)
			}, Visit{Guest: "eve"})
			rows := one(t, db, "SELECT count(*)::text FROM durable_steps")
			if rows == "0" {
				t.Error("no rows of steps")
			}
		})
	}
}

// docs/functions.md contains the code unchanged.
func TestVisitInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/functions.md")
	code, errCode := os.ReadFile("example_tx_test.go")
	if err := cmp.Or(err, errCode); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(code), "\nfunc (t *theater) visit(")
	text, _, found := strings.Cut(text, "\n}\n")
	if !found || !strings.Contains(string(page), "```go\nfunc (t *theater) visit("+text+"\n}\n```") {
		t.Error("docs/functions.md does not contain the function visit")
	}
}
