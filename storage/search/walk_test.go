package search

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A walk returns every matching process once, oldest first, for several limits. Changes to
// processes that the walk has passed do not affect the rest of the walk.
func TestWalk(t *testing.T) {
	t.Parallel()
	store, db := stock(t, 3_000)
	for _, text := range []string{
		"", "status = ERROR", "kind != job AND NOT process_id = 'a*'", "metadata.tenant = t1", `process_id = "order-*"`,
		`created_time > "2026-11-20T00:00:00Z"`,
	} {
		f, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for token := ""; ; {
			page, err := List(t.Context(), store, Query{
				Namespace: "ns", Filter: f, OrderBy: OrderOldest, PageToken: token, PageSize: 1000,
			})
			if err != nil {
				t.Fatal(err)
			}
			for n := range page.Processes {
				want = append(want, page.Processes[n].ProcessID)
			}
			if token = page.NextPageToken; token == "" {
				break
			}
		}
		for _, limit := range []int{7, 500, 5_000} {
			var at Cursor
			met := 0
			for more := true; more; {
				var found []Step
				if found, at, more, err = Walk(t.Context(), store, "ns", f, at, limit); err != nil ||
					len(found) > limit {
					t.Fatalf("%d found, %v", len(found), err)
				}
				for _, s := range found {
					if met >= len(want) || s.ProcessID != want[met] || s.Status == "" {
						t.Fatalf("%q by %d: step %d is %v", text, limit, met, s)
					}
					met++
				}
			}
			if met != len(want) || met == 0 {
				t.Errorf("%q by %d: found %d of %d", text, limit, met, len(want))
			}
		}
	}
	found, at, _, err := Walk(t.Context(), store, "ns", Filter{}, Cursor{}, 10)
	if err != nil || len(found) != 10 || at != found[9].Cursor {
		t.Fatalf("%v, %v, %v", found, at, err)
	}
	next, _, _, err := Walk(t.Context(), store, "ns", Filter{}, at, 1)
	if err != nil {
		t.Fatal(err)
	}
	storagetest.Exec(t, db, "UPDATE processes SET removed_time = now() WHERE process_id = ANY ($1)", []string{
		found[3].ProcessID, at.ProcessID,
	})
	if again, _, _, err := Walk(t.Context(), store, "ns", Filter{}, at, 1); err != nil || again[0] != next[0] {
		t.Errorf("%v, %v, want %v", again, err, next)
	}
}

// A filter for one process returns it while it exists and matches, with one key of the index.
func TestOnly(t *testing.T) {
	t.Parallel()
	store, db := stock(t, 3_000)
	found, _, _, err := Walk(t.Context(), store, "ns", must(t, "status = ERROR"), Cursor{}, 100)
	if err != nil || len(found) < 2 {
		t.Fatalf("%v, %v", found, err)
	}
	one := found[len(found)-1]
	for text, want := range map[string]int{
		"": 1, "status = ERROR": 1, "status = COMPLETED": 0, "created_time > 2999-01-01T00:00:00Z": 0,
	} {
		got, _, more, err := Walk(t.Context(), store, "ns", must(t, text).Only(one.Cursor), Cursor{}, 1)
		if err != nil || len(got) != want || want == 1 && got[0] != one {
			t.Errorf("%q: %v, %v, %v", text, got, more, err)
		}
	}
	err = store.Read(t.Context(), "explain", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, scanSettings); err != nil {
			return err
		}
		q := Query{Namespace: "ns", Filter: must(t, "status = RUNNING").Only(one.Cursor)}
		order := orders[OrderOldest]
		plan, err := planned(ctx, tx, scanStatement(leanColumns, q, order, order.start(q.Filter, position{}),
			usual.first, 1, usual.bytes))
		_, condition, _ := strings.Cut(plan, "Index Cond:")
		if condition, _, _ = strings.Cut(condition, "\n"); !strings.Contains(condition, "(created_time = ") ||
			strings.Contains(plan, "Seq Scan") {
			t.Errorf("the plan:\n%s", plan)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	another := Cursor{one.CreatedTime.Add(-time.Second), one.ProcessID} // removed, and started again since
	if got, _, _, err := Walk(t.Context(), store, "ns", Filter{}.Only(another), Cursor{}, 1); err != nil ||
		len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	storagetest.Exec(t, db, "UPDATE processes SET removed_time = now() WHERE process_id = $1", one.ProcessID)
	if got, _, _, err := Walk(t.Context(), store, "ns", Filter{}.Only(one.Cursor), Cursor{}, 1); err != nil ||
		len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// A walk reads neither states nor metadata nor details.
func TestWalkIsLean(t *testing.T) {
	t.Parallel()
	l := &list{lean: true}
	s := scanStatement(l.columns(), Query{Namespace: "ns"}, orders[OrderOldest], position{}, 10, 10, 1)
	store, _ := stock(t, 10)
	err := store.Read(t.Context(), "look", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.text.String(), append([]any{pgx.QueryExecModeDescribeExec}, s.args...)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for _, f := range rows.FieldDescriptions() {
			if f.Name == "aux_state" || f.Name == "metadata" || f.Name == "detail" {
				t.Errorf("it reads %s", f.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnd(t *testing.T) {
	t.Parallel()
	for _, tt := range [][3]string{
		{"", "", ""}, {"status = ERROR", "", "status = ERROR"}, {"", "kind = a", "kind = a"},
		{"status = ERROR OR status = INIT", "kind = a AND NOT kind = b",
			"(status = ERROR OR status = INIT) AND kind = a AND NOT kind = b"},
	} {
		f, g, want := must(t, tt[0]), must(t, tt[1]), must(t, tt[2])
		if got := f.And(g); got.String() != want.String() {
			t.Errorf("%q and %q: %q, want %q", tt[0], tt[1], got, want)
		}
	}
	f := must(t, "status = ERROR AND kind = a")
	_, _ = f.And(must(t, "kind = b")), f.And(must(t, "kind = c"))
	if f.String() != must(t, "status = ERROR AND kind = a").String() {
		t.Errorf("it was changed: %s", f)
	}
}

func must(t *testing.T, text string) Filter {
	t.Helper()
	f, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
