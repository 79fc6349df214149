package search

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Errors whose messages differ only in numbers, IDs and quoted text have the same fingerprint.
func TestErrorFingerprint(t *testing.T) {
	t.Parallel()
	_, db := opened(t)
	fingerprint := func(reason, message string) (mark string) {
		t.Helper()
		err := db.QueryRow(t.Context(), "SELECT error_fingerprint($1, $2)", reason, message).Scan(&mark)
		if err != nil || len(mark) != 16 {
			t.Fatalf("%q: %q, %v", message, mark, err)
		}
		return mark
	}
	seen := map[string]string{}
	for _, messages := range [][]string{
		{"order A-9: the goods broke", "order B-1234: the goods broke", "order 7: the goods broke",
			"order ab_7f: the goods broke"},
		{"dial tcp 10.0.0.1:5432: connect: refused", "dial tcp 10.77.0.12:80: connect: refused"},
		{"id 3f2b8c1a-0d4e-4f6a-9b1c-2d3e4f5a6b7c gone", "id 00000000-0000-4000-8000-000000000001 gone"},
		{`no "tea" left`, `no "broken cake" left`, `no "" left`}, {"GET /orders/17 failed", "GET /orders/18 failed"},
		{"größe 7€", "größe 8€"}, {"kiosk ö1", "kiosk ü22"}, {"at 12.", "at 13."}, {"timeout", "timeout"}, {"", ""},
		{strings.Repeat("x", 512) + "a", strings.Repeat("x", 512) + "b"},
	} {
		mark := fingerprint("r", messages[0])
		if other, ok := seen[mark]; ok {
			t.Errorf("%q has the fingerprint of %q", messages[0], other)
		}
		seen[mark] = messages[0]
		for _, m := range messages {
			if fingerprint("r", m) != mark {
				t.Errorf("%q and %q have different fingerprints", m, messages[0])
			}
			if fingerprint("s", m) == mark {
				t.Errorf("%q: the fingerprint does not depend on the reason", m)
			}
		}
	}
	for _, differ := range [][2]string{
		{"no tea", "no cake"}, {"order 1: broke", "customer 1: broke"}, {"a", ""}, {"öl 1", "el 1"},
		{"at 12.", "at 12"},
		{strings.Repeat("x", 511) + "a", strings.Repeat("x", 511) + "b"},
	} {
		if fingerprint("r", differ[0]) == fingerprint("r", differ[1]) {
			t.Errorf("%q and %q have the same fingerprint", differ[0], differ[1])
		}
	}
}

// A fingerprint finds exactly the processes that are in ERROR because of this error, even if a page
// reads few rows. It does not find processes that had the error before, nor the jobs of steps.
func TestProcessesOfAnErrorGroup(t *testing.T) {
	t.Parallel()
	store, db := opened(t)
	// In each group of six processes, two failed with the error "no tea", one was imported with
	// it, one failed with "no cake", one was repaired, and one is the job of a step.
	storagetest.Exec(t, db, `
		INSERT INTO processes (namespace, process_id, status, attention, attention_time, corrupted_by, detail)
		SELECT 'ns', CASE n % 6 WHEN 5 THEN '~job/run-' || n || '/a' ELSE 'p' || n END, s, NULLIF(s, 'RUNNING'),
		       CASE s WHEN 'ERROR' THEN now() - n * interval '1 minute' END,
		       CASE s WHEN 'ERROR' THEN CASE n % 6 WHEN 2 THEN 0 ELSE n END END,
		       CASE s WHEN 'ERROR' THEN 'order ' || n || ': no ' || CASE n % 6 WHEN 3 THEN 'cake' ELSE 'tea' END END
		  FROM (SELECT n, CASE n % 6 WHEN 4 THEN 'RUNNING' ELSE 'ERROR' END::process_status AS s
		          FROM generate_series(1, 120) n) x`)
	storagetest.Exec(t, db, `
		INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, scheduled_time, finished_time,
		                   failure)
		SELECT p.namespace, p.process_id, task.id, 'CALL', 'ERROR', 1, now(), now(),
		       jsonb_build_object('reason', 'gone', 'message', task.message)
		  FROM processes p
		 CROSS JOIN LATERAL (
		   VALUES (p.corrupted_by, p.detail), (1000, 'order 7: no tea'), (1001, 'order 8: no tea')) AS task(id, message)
		 WHERE task.id > 0`)
	storagetest.Exec(t, db, `UPDATE processes SET removed_time = now() WHERE process_id = 'p6'`)
	var tea, imported []string
	for n := range 121 {
		switch id := fmt.Sprint("p", n); {
		case n > 0 && (n%6 == 0 || n%6 == 1) && n != 6:
			tea = append(tea, id)
		case n%6 == 2:
			imported = append(imported, id)
		}
	}
	for message, want := range map[string][]string{
		"gone/order 1: no tea": tea, "/order 1: no tea": imported, "gone/order 1: no coffee": nil,
	} {
		reason, message, _ := strings.Cut(message, "/")
		var mark string
		if err := db.QueryRow(t.Context(), "SELECT error_fingerprint(NULLIF($1, ''), $2)", reason, message).
			Scan(&mark); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"fingerprint = " + mark, "status = ERROR AND fingerprint = " + mark} {
			f, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, within := range []reach{
				usual, {first: 1, scanned: 3, candidates: 5000, bytes: usual.bytes},
				{first: 1, scanned: 3, candidates: 10, bytes: usual.bytes},
			} {
				got := walk(t, store, Query{Namespace: "ns", Filter: f, PageSize: 7}, within)
				slices.Sort(got)
				want := slices.Sorted(slices.Values(want))
				if !slices.Equal(got, want) {
					t.Errorf("%s %s within %+v:\ngot  %q\nwant %q", message, text, within, got, want)
				}
			}
		}
	}
}
