package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/process"
)

// SQLSTATEs that are handled specially.
const (
	stateLockNotAvailable     = "55P03"
	stateDeadlock             = "40P01"
	stateSerialization        = "40001"
	stateUniqueViolation      = "23505"
	stateQueryCanceled        = "57014"
	stateReadOnly             = "25006"
	stateUndefinedTable       = "42P01"
	stateUndefinedFunction    = "42883"
	stateInvalidSchema        = "3F000"
	stateNoPrivilege          = "42501"
	stateDiskFull             = "53100"
	stateIOError              = "58030"
	classConnection           = "08"
	classOperatorIntervention = "57"
	classResources            = "53"
	classSystem               = "58"
	classData                 = "22"
	classConstraint           = "23"
	classProgramLimit         = "54"
)

// SQLState returns the SQLSTATE of an error of PostgreSQL, or "" for any other error.
func SQLState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// IsUniqueViolation reports whether a statement failed because a row with the same key exists. If
// the statement inserts processes, another session has created one of them since the statement
// began.
func IsUniqueViolation(err error) bool { return SQLState(err) == stateUniqueViolation }

// lost reports whether the connection cannot be used after an error: it broke, the server shut
// down, or its transactions are read-only.
func lost(err error) bool {
	state := SQLState(err)
	if state == "" {
		return true
	}
	if state == stateQueryCanceled {
		return false
	}
	class := state[:2]
	return class == classConnection || class == classOperatorIntervention || state == stateReadOnly
}

// rejectsData reports whether an error is due to the data of a statement, so that no retry can
// succeed: it violates a type, a constraint or a limit of PostgreSQL, or cannot be encoded. All
// other errors, such as a missing GRANT or an I/O error, are problems of the server, which an
// operator must repair.
func rejectsData(err error) bool {
	state := SQLState(err)
	if state == "" {
		return true
	}
	class := state[:2]
	return class == classData || class == classConstraint || class == classProgramLimit
}

// unavailable returns the error of an operation that could not use the database. It wraps the cause
// for the log.
func unavailable(op string, err error) error {
	return fmt.Errorf("%s: %w (%w)", op, process.ErrUnavailable, err)
}

// isTemporary reports whether the same statement may succeed later on the same connection: it
// waited too long for a lock, took too long, conflicted with another transaction or lacked
// resources.
func isTemporary(err error) bool {
	switch state := SQLState(err); state {
	case "":
		return false
	case stateLockNotAvailable, stateQueryCanceled, stateDeadlock, stateSerialization:
		return true
	default:
		class := state[:2]
		return class == classResources || class == classSystem
	}
}

// unconnected reports whether a statement was not sent, because no connection could be opened. Such
// an error may wrap context.DeadlineExceeded, or an error of the server that concerns the
// connection.
func unconnected(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok
}

// mapped converts the error of a statement to an error of the domain. It returns pgx.ErrNoRows, and
// an InvalidError from the surrounding code, unchanged.
func mapped(op string, err error) error {
	if _, ok := errors.AsType[*process.InvalidError](err); ok {
		return err
	}
	switch {
	case err == nil:
		return nil
	case unconnected(err):
		return unavailable(op, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", op, err)
	case errors.Is(err, pgx.ErrNoRows):
		return err
	case lost(err), isTemporary(err):
		return unavailable(op, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}
