package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// engineSchema is the schema of the engine's tables.
const engineSchema = "progressor"

// acknowledged counts, by type, the tasks whose end the bench has received. The database must
// contain exactly as many, because the bench does not repeat requests.
type acknowledged map[process.TaskType]int64

const (
	countFinished   = `SELECT count(*) FROM tasks WHERE task_type = $1::text::task_type AND status = 'FINISHED'`
	countUnfinished = `SELECT (SELECT count(*) FROM running) + (SELECT count(*) FROM schedule) + ` +
		`(SELECT count(*) FROM messages)`
	// A process numbers its tasks in the order in which they were accepted, and handles them in
	// that order.
	countDisorder = `
SELECT count(*) FROM (
  SELECT task_id < lag(task_id) OVER (PARTITION BY namespace, process_id ORDER BY event_id) AS early
    FROM events) AS ordered
WHERE early`
)

// verify checks a database after its engine has stopped. A violation is an error, regardless of the
// figures.
func (r *runner) verify(ctx context.Context, d *scratch, row *Row, done acknowledged) error {
	r.step("check: " + row.Workload)
	conn, err := d.connect(ctx, engineSchema)
	if err != nil {
		return err
	}
	err = verifyOn(ctx, conn, row, done)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

func verifyOn(ctx context.Context, conn *pgx.Conn, row *Row, done acknowledged) error {
	var wrong []error
	count := func(want int64, what, sql string, args ...any) error {
		var have int64
		if err := conn.QueryRow(ctx, sql, args...).Scan(&have); err != nil {
			return fmt.Errorf("count %s: %w", what, err)
		}
		if have != want {
			wrong = append(wrong, fmt.Errorf("%s: %d, want %d", what, have, want))
		}
		return nil
	}
	for taskType, n := range done {
		if err := count(n, "finished tasks of type "+string(taskType), countFinished, string(taskType)); err != nil {
			return err
		}
	}
	if err := count(0, "tasks and messages that run or wait although all is done", countUnfinished); err != nil {
		return err
	}
	if err := count(0, "tasks that were handled before an earlier one of their process", countDisorder); err != nil {
		return err
	}
	report, err := storage.CheckInvariants(ctx, conn)
	if err != nil {
		return err
	}
	row.Checked = report.Checked
	for i, v := range report.Violations {
		if i == 5 {
			wrong = append(wrong, fmt.Errorf("and %d more", len(report.Violations)-i))
			break
		}
		wrong = append(wrong, errors.New(v.String()))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the database is inconsistent after %s: %w", row.Workload, errors.Join(wrong...))
	}
	return nil
}
