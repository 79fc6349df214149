package search

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage"
)

// reach limits what one page reads. A page that found fewer rows than requested returns where to
// continue.
type reach struct {
	// first is the number of rows that are read before another index is tried. A filter that
	// matches one process in twenty has filled a page of 100 by then, while its index would return
	// 50,000 of a million processes.
	first      int
	scanned    int   // rows in the order of the list, including first
	candidates int   // rows that an index may return for a page; if it returns more, the scan in order finds enough
	bytes      int64 // bytes of the page; includes the row that exceeds the limit
	// time is how long to read rows after first, so that a slow or busy machine returns shorter
	// pages rather than late ones. 0 means no limit.
	time time.Duration
}

var usual = reach{
	first: 2_000, scanned: 20_000, candidates: 5_000, bytes: storage.ListBytes, time: 20 * time.Millisecond,
}

// The page sizes.
const (
	DefaultPageSize = 100
	MaxPageSize     = 1000
)

// pageSize returns the size of a page for the size in a request.
func pageSize(requested int) int {
	if requested > 0 {
		return min(requested, MaxPageSize)
	}
	return DefaultPageSize
}

// Query selects a page of a list.
type Query struct {
	Namespace string
	Filter    Filter
	OrderBy   string // "" means OrderCreated
	PageSize  int    // at most MaxPageSize; 0 means DefaultPageSize
	PageToken string // token from the previous page; "" for the first
	Bytes     int64  // limit of a page, which ends with the process that exceeds it; 0 means storage.ListBytes

	jobs bool // all processes that match have a row in jobs
}

// Page is a page of a list. It may have fewer processes than requested, or none, and still have a
// next page.
type Page struct {
	Processes     []storage.Process
	NextPageToken string // "" if this is the last page
}

// List returns a page.
func List(ctx context.Context, store *storage.Store, q Query) (Page, error) {
	r := usual
	if q.Bytes > 0 {
		r.bytes = q.Bytes
	}
	return listWithin(ctx, store, q, r)
}

func listWithin(ctx context.Context, store *storage.Store, q Query, r reach) (Page, error) {
	order, err := orderOf(q.OrderBy, q.Filter)
	if err != nil {
		return Page{}, err
	}
	l := &list{query: q, order: orders[order], reach: r, size: pageSize(q.PageSize)}
	if l.last, err = l.order.positionOf(q.PageToken, q, order); err != nil {
		return Page{}, err
	}
	if err := store.Search(ctx, "list processes", l.read); err != nil {
		return Page{}, err
	}
	page := Page{Processes: l.found}
	if l.more {
		page.NextPageToken = token(q, order, l.last)
	}
	return page, nil
}

// list is a page that is being read.
type list struct {
	query Query
	order *order
	reach reach
	size  int
	lean  bool // read only the columns that a walk needs
	found []storage.Process
	bytes int64
	last  position // position of the last row read
	more  bool     // there may be rows after it

	began time.Time     // start of the read
	rows  int           // scanned rows
	took  time.Duration // time of the scans
}

// row is a row of a list.
type row struct {
	storage.Process
	N       int64 // number of the row in the window
	Matches bool
	Total   int64 // bytes of the matching rows so far
}

// Lists exclude plans that sort: with statistics from when the table was smaller, a plan might read
// a whole namespace or status and sort it. The connections exclude the other slow plans.
const (
	scanSettings = "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; " +
		"SET LOCAL enable_incremental_sort = off; SET LOCAL statement_timeout = 10000"
	candidateSettings = "SET LOCAL enable_bitmapscan = on; SET LOCAL enable_sort = on"
)

// read fills the page. It scans the first rows in order. If these rows do not fill the page, and
// the rows after them are unlikely to fill it, read tries the indexes for the conditions of the
// filter. If every index returns too many rows, read continues the scan. (If 1% of a million
// processes is in ERROR, a page of these scans 10,000 rows in order. Trying the index first took
// 50% longer.)
func (l *list) read(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, scanSettings); err != nil {
		return err
	}
	l.found, l.bytes, l.more, l.began = nil, 0, false, time.Now()
	start := l.last
	if err := l.scan(ctx, tx, l.reach.first); err != nil || !l.canContinue() {
		return err
	}
	if len(l.found)*l.reach.scanned >= l.size*l.reach.first { // at this rate the scan fills the page
		return l.scanOn(ctx, tx)
	}
	if _, err := tx.Exec(ctx, candidateSettings); err != nil {
		return err
	}
	for n, index := range l.query.indexes() {
		if crowded, err := l.crowded(ctx, tx, n); err != nil || crowded {
			if err != nil {
				return err
			}
			continue
		}
		s := candidateStatement(l.columns(), l.query, l.order, start, index, l.size, l.reach)
		if s == nil {
			continue
		}
		done, err := l.fromIndex(ctx, tx, s, start)
		if err != nil || done {
			return err
		}
	}
	if _, err := tx.Exec(ctx, scanSettings); err != nil {
		return err
	}
	return l.scanOn(ctx, tx)
}

// scanOn continues the scan up to the reach of a page, in windows that are likely to end in time.
func (l *list) scanOn(ctx context.Context, tx pgx.Tx) error {
	for left := l.reach.scanned - l.reach.first; left > 0 && l.canContinue(); {
		window := left
		if l.reach.time > 0 {
			room := l.reach.time - time.Since(l.began)
			if room <= 0 {
				return nil
			}
			window = min(left, max(l.reach.first, int(float64(l.rows)*float64(room)/float64(max(l.took, 1)))))
		}
		if err := l.scan(ctx, tx, window); err != nil {
			return err
		}
		left -= window
	}
	return nil
}

func (l *list) columns() string {
	if l.lean {
		return leanColumns
	}
	return columns
}

// canContinue reports whether the page has room and the list has more rows.
func (l *list) canContinue() bool { return l.more && len(l.found) < l.size && l.bytes <= l.reach.bytes }

// scan reads rows in the order of the list, after the last one.
func (l *list) scan(ctx context.Context, tx pgx.Tx, window int) error {
	room := l.size - len(l.found)
	began := time.Now()
	rows, err := query[row](ctx, tx,
		scanStatement(l.columns(), l.query, l.order, l.last, window, room, l.reach.bytes-l.bytes))
	if err != nil {
		return err
	}
	l.rows, l.took = l.rows+window, l.took+time.Since(began)
	l.take(rows, window, room)
	return nil
}

// take adds the matching rows of a window to the page. If the read has reached the end of the
// window, rows contains the last row even if it does not match, because the next window begins
// after it.
func (l *list) take(rows []row, window, room int) {
	l.more = false
	before := l.bytes
	for n := range rows {
		r := &rows[n]
		if r.Matches {
			if room == 0 {
				l.more = true
				return
			}
			room--
			l.found = append(l.found, r.Process)
			l.bytes = before + r.Total
		}
		l.last = l.order.position(r)
		l.more = r.N == int64(window) || l.bytes > l.reach.bytes
	}
}

// fromIndex fills the page with the rows that an index returns, if there are few enough.
func (l *list) fromIndex(ctx context.Context, tx pgx.Tx, s *statement, start position) (done bool, err error) {
	rows, err := query[row](ctx, tx, s)
	if err != nil {
		return false, err
	}
	if len(rows) > 0 && rows[0].N == int64(l.reach.candidates) {
		return false, nil
	}
	l.found, l.bytes, l.last = nil, 0, start
	l.take(rows, -1, l.size)
	return true, nil
}

func (o *order) position(r *row) position {
	switch o.field {
	case fieldProcessID:
		return position{position{}.at, r.ProcessID}
	case fieldStatusChanged:
		return position{*r.AttentionTime, r.ProcessID}
	}
	return position{r.CreatedTime, r.ProcessID}
}

// query runs a statement and returns its rows.
func query[Row any](ctx context.Context, tx pgx.Tx, s *statement) ([]Row, error) {
	return collect(ctx, tx, s, pgx.RowToStructByNameLax[Row])
}

// queryIDs runs a statement with one column and returns its values.
func queryIDs(ctx context.Context, tx pgx.Tx, s *statement) ([]string, error) {
	return collect(ctx, tx, s, pgx.RowTo[string])
}

// collect runs a statement with a custom plan, because other values may need another index.
func collect[Row any](ctx context.Context, tx pgx.Tx, s *statement, row pgx.RowToFunc[Row]) ([]Row, error) {
	rows, err := tx.Query(ctx, s.text.String(), append([]any{pgx.QueryExecModeDescribeExec}, s.args...)...)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	return pgx.CollectRows(rows, row)
}
