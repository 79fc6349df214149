package storage_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

func words[T ~string](list []T) []string {
	var out []string
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

// contractNames returns the values of an enum of the API, without the prefix and without
// UNSPECIFIED.
func contractNames(enum protoreflect.EnumDescriptor, prefix string) []string {
	var names []string
	for n := range enum.Values().Len() {
		if name := strings.TrimPrefix(string(enum.Values().Get(n).Name()), prefix); name != "UNSPECIFIED" {
			names = append(names, name)
		}
	}
	return names
}

// The values of each enum are the same in SQL, in Go and, except for waits_for, in the API. Their
// order does not matter.
func TestEnumsAgree(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, e := range []struct {
		sqlType  string
		inGo     []string
		contract []string
	}{
		{"process_status", words(process.Statuses()),
			contractNames(progressorv1.ProcessStatus(0).Descriptor(), "PROCESS_STATUS_")},
		{"task_type", words(process.TaskTypes()), contractNames(progressorv1.TaskType(0).Descriptor(), "TASK_TYPE_")},
		{"task_status", words(process.TaskStatuses()),
			contractNames(progressorv1.TaskStatus(0).Descriptor(), "TASK_STATUS_")},
		{"waits_for", words(process.WaitsFors()), nil},
	} {
		inSQL := ask[[]string](b, "SELECT enum_range(NULL::"+e.sqlType+")::text[]")
		equal(t, e.sqlType+" in Go", sorted(e.inGo), sorted(inSQL))
		if e.contract != nil {
			equal(t, e.sqlType+" in the contract", sorted(e.contract), inSQL)
		}
	}
}

// An index or predicate with a column that every Start changes would prevent HOT updates of
// processes.
func TestIndexesOmitStatus(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rows, err := b.db.Query(t.Context(),
		`SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'processes'::regclass`)
	indexes, err2 := pgx.CollectRows(must(t, rows, err), pgx.RowTo[string])
	if len(must(t, indexes, err2)) < 4 {
		t.Errorf("the indexes of processes are %q", indexes)
	}
	for _, index := range indexes {
		_, definition, _ := strings.Cut(index, " USING ")
		for _, column := range []string{
			"status", "previous_status", "status_changed_time", "last_event_id", "aux_state", "detail",
		} {
			if slices.Contains(strings.FieldsFunc(definition, func(r rune) bool {
				return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz_", r)
			}), column) {
				t.Errorf("%s names %s", index, column)
			}
		}
	}
	// All updates of a process by its start, its calls and their results are HOT updates.
	b.process("p", events("a"))
	for range 5 {
		b.save(end(b.claim("p"), storage.Finished))
	}
	// The counters of a session are reported when it ends.
	b.Close()
	var updated, hot int
	for updated < 6 {
		b.exec("SELECT pg_stat_clear_snapshot()")
		err := b.db.QueryRow(t.Context(),
			"SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'processes'").Scan(&updated, &hot)
		must(t, 0, err)
	}
	equal(t, "HOT updates", hot, updated)
}
