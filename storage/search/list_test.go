package search

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// opened returns a store and a pool on a new database.
func opened(t testing.TB) (*storage.Store, *pgxpool.Pool) {
	t.Helper()
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	store, err := storage.Open(t.Context(), storage.Config{DSN: dsn, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store, storagetest.Connect(t, dsn)
}

// plant runs statements with the parameter n.
func plant(t testing.TB, db *pgxpool.Pool, n int, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		var args []any
		if strings.Contains(statement, "$1") {
			args = []any{n}
		}
		if _, err := db.Exec(t.Context(), statement, args...); err != nil {
			t.Fatalf("%v in %s", err, statement)
		}
	}
}

// stock inserts processes of many kinds into a database. They have no tasks.
func stock(t testing.TB, n int) (*storage.Store, *pgxpool.Pool) {
	t.Helper()
	store, db := opened(t)
	storagetest.Exec(t, db, `
		INSERT INTO processes (namespace, process_id, status, status_changed_time, attention, attention_time, detail,
		  corrupted_by, kind, created_time,
		                       removed_time, aux_state, metadata)
		SELECT CASE n % 10 WHEN 0 THEN 'other' ELSE 'ns' END, CASE n % 3 WHEN 0 THEN 'order-' WHEN 1 THEN 'Öl-'
		  ELSE 'a*b' END || n, s, t,
		       CASE WHEN s NOT IN ('INIT', 'RUNNING') THEN s END, CASE WHEN s NOT IN ('INIT', 'RUNNING') THEN t END,
		       CASE s WHEN 'ERROR' THEN CASE n % 4 WHEN 0 THEN 'no "book"' WHEN 1 THEN 'zombie detected'
		         WHEN 2 THEN 'a*b' END END,
		       CASE s WHEN 'ERROR' THEN n END, CASE n % 5 WHEN 0 THEN 'job'
		         ELSE '' END, '2026-11-01'::timestamptz + n / 3 * interval '1 hour',
		       CASE WHEN n % 17 = 0 THEN now() END, convert_to(repeat('x', n % 50), 'UTF8'),
		       CASE WHEN n % 7 <> 0 THEN jsonb_build_object('tenant', 't' || n % 11, 'n', n % 13 - 6, 'half', n / 2.0,
		         'vip', n % 2 = 0,
		         'tags', to_jsonb(ARRAY['x' || n % 4, 'y']), 'a b', jsonb_build_object('c.d', n % 6), 'mixed',
		         CASE n % 3 WHEN 0 THEN to_jsonb(n) WHEN 1 THEN to_jsonb('s' || n) ELSE 'null'::jsonb END) END
		  FROM (SELECT n, (enum_range(NULL::process_status))[n % 6 + 1] AS s, '2026-11-10'::timestamptz +
		    (n * 7919 % 100) * interval '1 minute' AS t
		          FROM generate_series(1, $1::int) n) x`, n)
	return store, db
}

// holds evaluates a filter in Go for a row and its metadata.
func holds(n node, p *storage.Process, m map[string]any) bool {
	switch n := n.(type) {
	case nil:
		return true
	case allOf:
		return !slices.ContainsFunc(n, func(part node) bool { return !holds(part, p, m) })
	case anyOf:
		return slices.ContainsFunc(n, func(part node) bool { return holds(part, p, m) })
	case not:
		return !holds(n.of, p, m)
	}
	c := n.(*comparison)
	if c.operator == differs {
		same := *c
		same.operator = equals
		return !holds(&same, p, m)
	}
	v := c.value
	switch c.field {
	case fieldStatus:
		return p.Status == v.status
	case fieldProcessID:
		return fits(c, &p.ProcessID)
	case fieldKind:
		return fits(c, &p.Kind)
	case fieldDetail:
		return fits(c, p.Detail)
	case fieldCreated:
		return agrees(c.operator, p.CreatedTime.Compare(v.time))
	case fieldStatusChanged:
		return agrees(c.operator, p.StatusChangedTime.Compare(v.time))
	case fieldCorruptedBy:
		return p.CorruptedBy != nil && (v.kind == isAnything || agrees(c.operator, int(*p.CorruptedBy-v.number)))
	}
	return holdsMetadata(c, m)
}

func fits(c *comparison, have *string) bool {
	switch {
	case have == nil || c.value.kind == isAnything:
		return have != nil
	case c.value.kind == isPrefix:
		return strings.HasPrefix(*have, c.value.text)
	case c.operator == has:
		return strings.Contains(*have, c.value.text)
	}
	return agrees(c.operator, strings.Compare(*have, c.value.text))
}

func agrees(operator string, sign int) bool {
	switch operator {
	case equals:
		return sign == 0
	case less:
		return sign < 0
	case lessEqual:
		return sign <= 0
	case more:
		return sign > 0
	}
	return sign >= 0
}

func holdsMetadata(c *comparison, m map[string]any) bool {
	if m == nil || len(c.path) == 0 {
		return m != nil
	}
	var have any = m
	for _, key := range c.path {
		inner, ok := have.(map[string]any)
		if !ok {
			return false
		}
		if have, ok = inner[key]; !ok {
			return false
		}
	}
	if c.value.kind == isAnything {
		return true
	}
	var want any
	_ = json.Unmarshal(c.value.json(), &want)
	if list, ok := have.([]any); ok && c.operator == has {
		return slices.ContainsFunc(list, func(one any) bool { return one == want })
	}
	if c.operator == equals || c.operator == has {
		return have == want
	}
	switch have := have.(type) {
	case float64:
		if want, ok := want.(float64); ok {
			return agrees(c.operator, map[bool]int{true: 1}[have > want]-map[bool]int{true: 1}[have < want])
		}
	case string:
		if want, ok := want.(string); ok {
			return agrees(c.operator, strings.Compare(have, want))
		}
	}
	return false
}

// arbitrary returns a random filter.
func arbitrary(r *rand.Rand, depth int) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	if depth > 0 && r.IntN(2) == 0 {
		a, b := arbitrary(r, depth-1), arbitrary(r, depth-1)
		return pick("("+a+") AND ("+b+")", "("+a+") OR ("+b+")", "NOT ("+a+")", "("+a+") ("+b+")")
	}
	op := pick("=", "!=", "<", "<=", ">", ">=")
	eq := pick("=", "!=")
	return pick(
		"status "+eq+" "+pick("INIT", "RUNNING", "ERROR", "SUSPENDED", "COMPLETED", "CANCELLED"),
		"process_id "+op+` "`+pick("order-30", "Öl-31", `a\*b32`, "")+`"`,
		"process_id "+eq+" "+pick("order-1*", `"a\**"`, "Öl*", "*"),
		`kind `+eq+pick(`""`, "job"), "created_time "+op+pick("2026-11-01T05:00:00Z", "2026-11-01T12:30:00+02:00"),
		`status_changed_time `+op+` "2026-11-10T00:30:00Z"`, "detail "+eq+pick(`"zombie*"`, `"a\*b"`, `"no \"book\""`),
		"detail:"+pick("*", "book", `"\""`),
		"corrupted_by "+op+" 33", "corrupted_by:*",
		"metadata.tenant"+pick("=", ":", "<", "!=")+"t"+pick("1", "5", "10"),
		"metadata.n "+op+pick("0", "-2", "1.5", "6.0"),
		"metadata.half"+op+"10.5", "metadata.vip"+pick("=", "!=", ":")+pick("true", "false"),
		"metadata.tags:"+pick("x1", "y", "z", "*"),
		`metadata."a b"."c.d" `+op+" 3", "metadata.mixed"+op+pick("20", "s20"), "metadata:"+pick("tenant", "none", "*"),
		"metadata.tags"+eq+"y",
		"metadata.tenant.x"+eq+"1")
}

// expected returns the complete list, by evaluating the filter in Go.
func expected(rows []storage.Process, f Filter, order string) (ids []string) {
	var list []storage.Process
	for _, p := range rows {
		var m map[string]any
		_ = json.Unmarshal(p.Metadata, &m) // NULL stays nil
		if p.Namespace == "ns" && p.RemovedTime == nil && holds(f.root, &p, m) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b storage.Process) int {
		byID := strings.Compare(a.ProcessID, b.ProcessID)
		byTime := a.CreatedTime.Compare(b.CreatedTime)
		switch order {
		case OrderID:
			return byID
		case OrderIDDescending:
			return -byID
		case OrderStatusChanged:
			byTime = a.AttentionTime.Compare(*b.AttentionTime)
		}
		if byTime == 0 {
			byTime = byID
		}
		if order == OrderOldest {
			return byTime
		}
		return -byTime
	})
	for _, p := range list {
		ids = append(ids, p.ProcessID)
	}
	return ids
}

// Random filters return the same rows in PostgreSQL as in Go, in every order and with all kinds of
// page limits.
func TestListsAgree(t *testing.T) {
	t.Parallel()
	store, db := stock(t, 200)
	// Errors are returned by CollectRows.
	found, _ := db.Query(t.Context(),
		`SELECT namespace, process_id, status, previous_status, status_changed_time, attention, attention_time, detail,
		corrupted_by,
		last_event_id, kind, created_time, removed_time, aux_state, metadata, cancel_requested_time, cancel_reason,
		  first_event_id, history_restarted_time FROM processes`)
	rows, err := pgx.CollectRows(found, pgx.RowToStructByName[storage.Process])
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 80 {
		text := arbitrary(r, 3)
		if r.IntN(4) == 0 {
			text = "status = ERROR AND " + text
		}
		f, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for order := range orders {
			if order == OrderStatusChanged && f.listStatus() == "" {
				continue
			}
			q := Query{Namespace: "ns", Filter: f, OrderBy: order, PageSize: 1 + r.IntN(30)}
			within := reach{first: 1 + r.IntN(30), candidates: 1 + r.IntN(60), bytes: usual.bytes}
			within.scanned = within.first + 1 + r.IntN(60)
			if r.IntN(4) == 0 {
				within.bytes = 1 + r.Int64N(2000)
			}
			within.time = []time.Duration{0, time.Nanosecond, time.Millisecond, time.Hour}[r.IntN(4)]
			if got, want := walk(t, store, q, within), expected(rows, f, order); !slices.Equal(got, want) {
				t.Fatalf("%s by %s, %d a page within %+v:\ngot  %q\nwant %q", f, order, q.PageSize, within, got, want)
			}
		}
	}
}

// walk reads a list page by page.
func walk(t *testing.T, store *storage.Store, q Query, within reach) (ids []string) {
	t.Helper()
	for range 1000 {
		page, err := listWithin(t.Context(), store, q, within)
		if err != nil || len(page.Processes) > q.PageSize {
			t.Fatalf("%s by %s: %d processes, %v", q.Filter, q.OrderBy, len(page.Processes), err)
		}
		for i := range page.Processes {
			ids = append(ids, page.Processes[i].ProcessID)
		}
		if q.PageToken = page.NextPageToken; q.PageToken == "" {
			return ids
		}
	}
	t.Fatalf("%s by %s does not end", q.Filter, q.OrderBy)
	return nil
}

// A token is valid only for its list, and rows that are added or removed between two pages do not
// shift the pages.
func TestPageTokens(t *testing.T) {
	t.Parallel()
	store, db := stock(t, 60)
	parsed := func(text string) Filter {
		f, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	q := Query{Namespace: "ns", Filter: parsed("kind = ''"), PageSize: 10}
	whole := walk(t, store, Query{Namespace: "ns", Filter: q.Filter, PageSize: 1000}, usual)
	first, err := List(t.Context(), store, q)
	if err != nil || len(first.Processes) != 10 {
		t.Fatal(len(first.Processes), err)
	}
	storagetest.Exec(t, db, "INSERT INTO processes (namespace, process_id) VALUES ('ns', 'new')")
	storagetest.Exec(t, db, "DELETE FROM processes WHERE process_id = $1", whole[9])
	q.PageToken = first.NextPageToken
	if rest := walk(t, store, q, usual); !slices.Equal(rest, whole[10:]) {
		t.Errorf("got %q, want %q", rest, whole[10:])
	}
	spaced := q
	spaced.Filter = parsed(`(kind="")`)
	if _, err := List(t.Context(), store, spaced); err != nil {
		t.Errorf("an equivalent filter: %v", err)
	}
	for name, change := range map[string]func(*Query){
		"namespace": func(q *Query) { q.Namespace = "other" },
		"filter":    func(q *Query) { q.Filter = parsed("kind = job") },
		"no filter": func(q *Query) { q.Filter = Filter{} }, "order": func(q *Query) { q.OrderBy = OrderOldest },
		"text": func(q *Query) { q.PageToken = "x" }, "length": func(q *Query) { q.PageToken = q.PageToken[:8] },
	} {
		other := q
		change(&other)
		_, err := List(t.Context(), store, other)
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "page_token" {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": OrderCreated, "created_time": OrderOldest, "created_time asc": OrderOldest,
		" Created_Time  DESC ": OrderCreated, "process_id": OrderID,
		"process_id desc": OrderIDDescending, "status_changed_time desc": OrderStatusChanged,
	} {
		f, err := Parse("kind = a AND status = ERROR")
		if got, err2 := orderOf(text, f); err != nil || err2 != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err2, want)
		}
	}
	for text, filters := range map[string][]string{
		"status_changed_time desc": {"", "status = RUNNING", "status = ERROR OR status = SUSPENDED", "status != INIT",
			"NOT status = ERROR", "status = ERROR OR kind = a"},
		"status_changed_time": {"status = ERROR"}, "size": {""}, "created_time desc, process_id": {""},
	} {
		for _, filter := range filters {
			f, err := Parse(filter)
			_, err2 := orderOf(text, f)
			invalid, ok := errors.AsType[*process.InvalidError](err2)
			if err != nil || !ok || invalid.Field != "order_by" {
				t.Errorf("%q with %q: got %v", text, filter, err2)
			}
		}
	}
}

// The successor of a prefix is the first text after all texts with this prefix.
func TestSuccessor(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{
		"a": "b", "az": "a{", "\uD7FF": "\uE000", "a\U0010FFFF": "b", "\U0010FFFF": "", "": "",
	} {
		if got := successor(prefix); got != want {
			t.Errorf("%q: got %q, want %q", prefix, got, want)
		}
	}
	if at := orders[OrderCreated].begin().at; at.Before(time.Date(lastYear, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Error(fmt.Sprint("a list begins at ", at))
	}
}
