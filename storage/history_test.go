package storage

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/process"
)

// historyError returns ErrUnavailable, so that the read is retried, unless the error is due to the
// history itself. If PostgreSQL has cancelled the read, historyError returns ErrSlowHistory.
func TestHistoryErrors(t *testing.T) {
	for _, tt := range []struct {
		err               error
		unavailable, slow bool
	}{
		{&pgconn.PgError{Code: stateQueryCanceled}, false, true},
		{&pgconn.PgError{Code: stateLockNotAvailable}, true, false},
		{&pgconn.PgError{Code: "57P01"}, true, false},
		{&pgconn.PgError{Code: "53300"}, true, false},
		{&pgconn.PgError{Code: "XX001"}, true, false},
		{&pgconn.PgError{Code: "42501"}, true, false},
		{&pgconn.PgError{Code: "22003"}, false, false},
		{&pgconn.PgError{Code: "54000"}, false, false},
		{fmt.Errorf("acquire: %w", context.DeadlineExceeded), true, false},
		{context.Canceled, true, false},
		{errors.New("broken pipe"), true, false},
	} {
		err := historyError(process.Key{Namespace: "n", ProcessID: "p"}, tt.err)
		if errors.Is(err, process.ErrUnavailable) != tt.unavailable || errors.Is(err, ErrSlowHistory) != tt.slow ||
			!errors.Is(err, tt.err) {
			t.Errorf("%v: %v", tt.err, err)
		}
	}
}
