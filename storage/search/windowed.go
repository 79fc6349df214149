package search

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// windowed finds the keys of a page in several reads. Each read examines a window: the next rows in
// the order of the list. It returns the rows that match.
type windowed struct {
	reach reach
	size  int
	found []position
	last  position // position of the last row read
	more  bool     // there may be rows after it

	began time.Time
	rows  int           // rows that were read
	took  time.Duration // time of the reads
}

// key is a row of a window.
type key struct {
	ID      string
	At      time.Time
	N       int64 // number of the row in the window
	Matches bool
}

func (w *windowed) start(from position) {
	w.found, w.last, w.more, w.began, w.rows, w.took = nil, from, false, time.Now(), 0, 0
}

func (w *windowed) canContinue() bool { return w.more && len(w.found) < w.size }

func (w *windowed) ids() []string {
	ids := make([]string, len(w.found))
	for n := range w.found {
		ids[n] = w.found[n].id
	}
	return ids
}

// scan reads one window.
func (w *windowed) scan(
	ctx context.Context, tx pgx.Tx, window int, statement func(from position, window, room int) *statement,
) error {
	began, room := time.Now(), w.size-len(w.found)
	rows, err := query[key](ctx, tx, statement(w.last, window, room))
	if err != nil {
		return err
	}
	w.rows, w.took, w.more = w.rows+window, w.took+time.Since(began), false
	for n := range rows {
		r := &rows[n]
		if r.Matches {
			if room == 0 {
				w.more = true
				return nil
			}
			room--
			w.found = append(w.found, position{r.At, r.ID})
		}
		w.last = position{r.At, r.ID}
		w.more = r.N == int64(window)
	}
	return nil
}

// scanOn reads more windows, up to the limits of a page (reach). Each window is small enough that
// its read probably ends in time. It is at most four times as large as all earlier windows
// together, because later rows may cost more.
func (w *windowed) scanOn(
	ctx context.Context, tx pgx.Tx, statement func(from position, window, room int) *statement,
) error {
	for left := w.reach.scanned - w.rows; left > 0 && w.canContinue(); {
		window := left
		if w.reach.time > 0 {
			room := w.reach.time - time.Since(w.began)
			if room <= 0 {
				return nil
			}
			window = min(left, 4*w.rows, max(1, int(float64(w.rows)*float64(room)/float64(max(w.took, 1)))))
		}
		if err := w.scan(ctx, tx, window, statement); err != nil {
			return err
		}
		left -= window
	}
	return nil
}
