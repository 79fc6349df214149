package jobs_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/engine/enginetest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// fromSQL enqueues a job with a statement and returns its ID.
func (n *node) fromSQL(t testing.TB, args string) (id string) {
	t.Helper()
	if err := n.DB.QueryRow(context.Background(), "SELECT progressor.enqueue("+args+")").Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// awaited waits until a job that was enqueued by SQL exists.
func (n *node) awaited(t testing.TB, namespace, id string) {
	t.Helper()
	enginetest.Eventually(t, testTimeout, id+" exists", func() bool {
		return n.Count(t, "SELECT count(*) FROM jobs WHERE namespace = $1 AND process_id = $2", namespace, id) == 1
	})
}

// A job from the transaction of an application is enqueued with all of its options when the
// transaction commits, and never if it rolls back.
func TestEnqueueFromSQL(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	tx := storagetest.Begin(t, n.DB, "SELECT progressor.enqueue('pull', 'work', job_id => 'never')")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	chosen := n.fromSQL(t, "'ns', 'work', '\"args of good\"', keep_result => true")
	if len(chosen) != 36 || chosen[14] != '7' {
		t.Errorf("the ID %q is not a UUID of version 7", chosen)
	}
	n.awaited(t, "ns", chosen)
	if job := n.job(t, "ns", chosen, succeeded); job.GetResult().GetStringValue() != "work with args of good" {
		t.Errorf("%v", job)
	}
	n.fromSQL(t, `'pull', 'mail', '{"to": "kim", "n": 7}', 'j', priority => 4, max_retry => 3,
		backoff => ARRAY['1.5 seconds', '1 hour']::interval[], timeout => '90 seconds', keep_result => true,
		result_ttl => '1 day', max_takeovers => 0, cancel_grace => '5 seconds', tags => '{a,b}',
		metadata => '{"team": "x"}', unique_key => 'k', unique_ttl => '1 minute'`)
	n.awaited(t, "pull", "j")
	n.fromSQL(t, "'pull', 'mail', job_id => 'twin', unique_key => 'k'")
	n.fromSQL(t, "'pull', 'mail', job_id => 'j'") // exists already
	enginetest.Eventually(t, testTimeout, "all messages are delivered", func() bool {
		return n.Count(t, "SELECT count(*) FROM messages") == 0
	})
	l := n.leaseOne(t, "w1")
	job := l.GetJob()
	o := job.GetOptions()
	if job.GetJobId() != "j" || job.GetName() != "mail" || job.GetArgs().GetStructValue().AsMap()["n"] != 7.0 ||
		o.GetPriority() != 4 || o.GetMaxRetry() != 3 ||
		len(o.GetBackoff().GetSteps()) != 2 || o.GetBackoff().GetSteps()[0].AsDuration() != 1500*time.Millisecond ||
		o.GetTimeout().AsDuration() != 90*time.Second || !o.GetKeepResult() ||
		o.GetResultTtl().AsDuration() != 24*time.Hour || o.MaxTakeovers == nil || o.GetMaxTakeovers() != 0 ||
		o.GetCancelGrace().AsDuration() != 5*time.Second || len(o.GetTags()) != 2 ||
		o.GetMetadata().AsMap()["team"] != "x" || o.GetUnique().GetKey() != "k" ||
		o.GetUnique().GetTtl().AsDuration() != time.Minute {
		t.Errorf("leased: %v", job)
	}
	if got := n.leaseAll(t, "w1"); len(got) != 0 {
		t.Errorf("leased in addition: %v", got)
	}
	if err := n.succeed(l, nil); err != nil {
		t.Fatal(err)
	}
	n.fromSQL(t, "'pull', 'work', job_id => 'later', run_time => now() + interval '1 hour'")
	n.awaited(t, "pull", "later")
	n.job(t, "pull", "later", progressorv1.JobState_JOB_STATE_SCHEDULED)
	if k := n.Count(t, "SELECT count(*) FROM jobs WHERE process_id IN ('never', 'twin')"); k != 0 {
		t.Errorf("%d jobs that should not exist", k)
	}
}

// If many jobs with the same unique key are enqueued at the same time, with SQL and with Enqueue,
// only one runs.
func TestUniqueFromSQL(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if _, err := n.DB.Exec(t.Context(),
				`SELECT progressor.enqueue('pull', 'work', unique_key => 'k')
					FROM generate_series(1, 20)`); err != nil {
				t.Error(err)
			}
			_, err := n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{
				Namespace: "pull", Name: "work",
				Options: &progressorv1.JobOptions{Unique: &progressorv1.Unique{Key: "k"}},
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	enginetest.Eventually(t, testTimeout, "all messages are delivered", func() bool {
		return n.Count(t, "SELECT count(*) FROM messages") == 0
	})
	if l := n.poll(t, "w1", 10); len(l) != 1 || n.succeed(l[0], nil) != nil {
		t.Fatalf("%d jobs", len(l))
	}
	n.exec(t, "SELECT progressor.enqueue('pull', 'work', unique_key => 'k')")
	if l := n.poll(t, "w1", 10); len(l) != 1 {
		t.Fatalf("%d jobs after the end of the first", len(l))
	}
}

// Invalid jobs are rejected immediately, with the name of the argument.
func TestEnqueueFromSQLRefuses(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	for args, want := range map[string]string{
		"'nowhere', 'work'": `there is no namespace "nowhere"`, "NULL, 'work'": "there is no namespace",
		"'ns', ''": "name has 0 bytes", "'ns', NULL": "name has 0 bytes",
		"'ns', repeat('x', 257)": "name has 257 bytes", "'ns', 'work', job_id => ''": "job_id has 0 bytes",
		"'ns', 'work', job_id => '~x'":                                          "begins with ~",
		"'ns', 'work', to_jsonb(repeat('x', 1048576))":                          "args has 1048578 bytes",
		`'ns', 'work', '{"a": [9007199254740993]}'`:                             "a number beyond 2^53",
		"'ns', 'work', run_time => 'infinity'":                                  "not between 1970 and 9999",
		"'ns', 'work', max_retry => -1":                                         "max_retry is negative",
		"'ns', 'work', max_takeovers => -1":                                     "max_takeovers is negative",
		"'ns', 'work', timeout => '366 days'":                                   "timeout is not between",
		"'ns', 'work', timeout => NULL":                                         "timeout is not between",
		"'ns', 'work', timeout => '0'":                                          "timeout is 0: want a positive one",
		"'ns', 'work', result_ttl => '-1 s'":                                    "is not between 0 and 100 years",
		"'ns', 'work', backoff => ARRAY['1 s', NULL]::interval[]":               "is not between 0 and 100 years",
		"'ns', 'work', tags => ARRAY['']":                                       "a tag has no",
		"'ns', 'work', metadata => '[]'":                                        "metadata is a JSON array",
		"'ns', 'work', unique_key => ''":                                        "unique_key has 0 bytes",
		"'ns', 'work', unique_ttl => '1 s'":                                     "needs a unique_key",
		"'ns', 'work', backoff => array_fill('1 s'::interval, ARRAY[1001])":     "backoff has 1001 steps",
		"'ns', 'work', tags => array_fill('t'::text, ARRAY[101])":               "tags has 101",
		"'ns', 'work', metadata => jsonb_build_object('a', repeat('x', 65536))": "metadata has",
	} {
		_, err := n.DB.Exec(t.Context(), "SELECT progressor.enqueue("+args+")")
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || pg.Code != "22023" || !strings.Contains(pg.Message, want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	if k := n.Count(t, "SELECT count(*) FROM messages") + n.Count(t, "SELECT count(*) FROM jobs"); k != 0 {
		t.Errorf("%d messages and jobs are stored", k)
	}
	// Values at their limits are accepted and can be read.
	id := n.fromSQL(t, "'pull', 'work', '9007199254740992', timeout => '1 microsecond', result_ttl => '100 years', "+
		"backoff => '{}', tags => '{}', priority => NULL, max_retry => NULL")
	n.awaited(t, "pull", id)
	job := n.job(t, "pull", id, available)
	if job.GetArgs().GetNumberValue() != 1<<53 || job.GetOptions().GetMaxRetry() != 0 {
		t.Errorf("%v", job)
	}
}

// A job that was enqueued by a message obeys the constraints of its namespace. It frees its key
// when a message cancels it.
func TestConstrainedFromSQL(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "one", MaxRunning: 1})
	for _, id := range []string{"a", "b", "c"} {
		n.fromSQL(t, "'pull', 'work', job_id => '"+id+"'")
		n.awaited(t, "pull", id)
	}
	l := n.leaseOne(t, "w1")
	if got := n.leaseAll(t, "w1"); len(got) != 0 {
		t.Errorf("leased in addition: %v", got)
	}
	if err := n.succeed(l, nil); err != nil {
		t.Fatal(err)
	}
	n.placed(t, "pull", 1)
	var next string
	if err := n.DB.QueryRow(t.Context(),
		"SELECT process_id FROM schedule WHERE waits_for = 'place'").Scan(&next); err != nil {
		t.Fatal(err)
	}
	n.exec(t, "SELECT progressor.cancel('pull', $1)", next)
	n.job(t, "pull", next, cancelled)
	if l := n.leaseOne(t, "w1"); l.GetJob().GetJobId() == next || n.succeed(l, nil) != nil {
		t.Errorf("%v", l)
	}
}
