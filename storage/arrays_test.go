package storage_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage"
)

// The arrays of the lanes reach PostgreSQL in the same form as those that pgx encodes.
func TestArraysArrive(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var conns [2]*pgx.Conn
	for n := range conns {
		conn, err := pgx.Connect(t.Context(), b.dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(t.Context()) })
		conns[n] = conn
	}
	storage.EncodeArrays(conns[1])
	id := uuid.MustParse("01234567-89ab-cdef-0123-456789abcdef")
	for _, test := range []struct {
		kind  string
		value any
	}{
		{"text", []string{"", "a", "ünïcode", "NULL", `"{},\\`}}, {"text", []string{}}, {"text", []string(nil)},
		{"bytea", [][]byte{nil, {}, {0}, []byte("ab"), {0xff, 0}}}, {"bytea", [][]byte{}}, {"bytea", [][]byte(nil)},
		{"uuid", []uuid.UUID{uuid.Nil, id}}, {"bool", []bool{true, false}},
		{"int", []int32{0, 1, -1, 1<<31 - 1, -1 << 31}}, {"bigint", []int64{0, 1, -1, 1<<63 - 1, -1 << 63}},
		{"int", []int64{1, 2}}, {"bigint", []int32{1, -2}}, {"text", []uuid.UUID{id}},
	} {
		var texts [2]string
		for n, conn := range conns {
			if err := conn.QueryRow(t.Context(), "SELECT coalesce($1::"+test.kind+"[]::text, 'none')",
				test.value).Scan(&texts[n]); err != nil {
				t.Fatalf("%s %v by connection %d: %v", test.kind, test.value, n, err)
			}
		}
		equal(t, fmt.Sprintf("%s %v", test.kind, test.value), texts[1], texts[0])
	}
}
