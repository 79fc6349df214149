package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// lost is a processor whose first TIMEOUT is lost after it has ended. It keeps the request.
type lost struct {
	processor.Processor
	request *request
}

func (l *lost) Process(ctx context.Context, req *request) (*response, error) {
	again := proto.CloneOf(req)
	resp, err := l.Processor.Process(ctx, req)
	if req.GetType() != progressorv1.TaskType_TASK_TYPE_TIMEOUT || l.request != nil {
		return resp, err
	}
	l.request = again
	return nil, &processor.LostError{Err: errors.New("response discarded by the test")}
}

// A concurrent attempt waits for the transaction of a stale one, and takes its value.
func TestTxOfStaleAttempt(t *testing.T) {
	t.Parallel()
	db := books(t)
	entered, release := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	f := book(db, func(context.Context) error {
		if runs.Add(1) == 1 {
			close(entered)
			<-release
		}
		return nil
	})
	stale := make(chan string, 1)
	p := start(t, processor.Func(func(ctx context.Context, req *request) (*response, error) {
		if req.GetType() == progressorv1.TaskType_TASK_TYPE_TIMEOUT {
			go func() {
				resp, err := f.Process(context.WithoutCancel(ctx), proto.CloneOf(req))
				stale <- entries(resp) + fmt.Sprint(err)
			}()
			<-entered
			go func() {
				enginetest.WaitUntil(20*time.Second, func() bool {
					return one(t, db, `SELECT count(*)::text FROM pg_locks JOIN pg_stat_activity USING (pid)
						WHERE NOT granted AND datname = current_database()`) == "1"
				})
				close(release)
			}()
		}
		return f.Process(ctx, req)
	}), processortest.WithoutCheckpoints())
	check(t, "stale attempt", <-stale, `{"k":"step","n":"book","v":"seat 7"} {"k":"end","n":"f","v":"seat 7"}<nil>`)
	check(t, "journal", journal(p), "start:f step:book end:f")
	check(t, "effects", effectsIn(t, db), "book")
	if runs.Load() != 1 {
		t.Errorf("the body ran %d times", runs.Load())
	}
}

// An attempt that hangs in a transaction does not block the next one for long.
func TestTxOfHangingAttempt(t *testing.T) {
	t.Parallel()
	db := books(t)
	release := make(chan struct{})
	var runs atomic.Int64
	entered := make(chan struct{})
	f := book(db, func(context.Context) error {
		if runs.Add(1) == 1 {
			close(entered)
			<-release
		}
		return nil
	})
	var hanging sync.WaitGroup
	p := processortest.New(processor.Func(func(ctx context.Context, req *request) (*response, error) {
		if req.GetType() == progressorv1.TaskType_TASK_TYPE_TIMEOUT {
			hanging.Go(func() {
				short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 500*time.Millisecond)
				defer cancel()
				_, _ = f.Process(short, proto.CloneOf(req))
			})
			<-entered
		}
		return f.Process(ctx, req)
	}), processortest.WithoutCheckpoints())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := p.Start(ctx, []byte(`{}`))
	close(release)
	hanging.Wait()
	if err != nil {
		t.Fatal(err)
	}
	check(t, "journal", journal(p), "start:f step:book end:f")
	check(t, "effects", effectsIn(t, db), "book")
}

// The response to a commit is lost. The step takes the value that was committed, although it has no
// more tries.
func TestTxWithLostCommit(t *testing.T) {
	t.Parallel()
	db := books(t)
	var armed, committing atomic.Bool
	proxy := storagetest.NewProxy(t, db.Config().ConnString(), func(client, server net.Conn) {
		go func() {
			buffer := make([]byte, 64<<10)
			for {
				n, err := client.Read(buffer)
				if err != nil {
					return
				}
				if bytes.Contains(buffer[:n], []byte("commit\x00")) && armed.CompareAndSwap(true, false) {
					committing.Store(true)
				}
				if _, err := server.Write(buffer[:n]); err != nil {
					return
				}
			}
		}()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil || committing.CompareAndSwap(true, false) {
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
	through := database(t, proxy.DSN)
	runs := 0
	armed.Store(true)
	p := start(t, book(through, func(context.Context) error {
		runs++
		return nil
	}))
	check(t, "journal", journal(p), "start:f step:book end:f")
	check(t, "effects", effectsIn(t, db), "book")
	if runs != 1 || armed.Load() {
		t.Errorf("the body ran %d times, want 1 (lost commit: %t)", runs, !armed.Load())
	}
}

// A process is cancelled after a step has committed and its attempt has been lost. The step is
// undone once. If the step has not committed by then, it can no longer commit.
func TestTxCancelled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err     error
		journal string
		effects string
	}{
		"committed":     {nil, "start:f step:book undo:book", "book undo-seat 7"},
		"not committed": {errors.New("no"), "start:f", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := books(t)
			err := c.err
			f := &lost{Processor: book(db, func(context.Context) error { return err }, durable.Retry(2, time.Hour),
				durable.UndoTx(db, func(c context.Context, tx pgx.Tx, seat string) error {
					return insert(c, tx, "undo-"+seat)
				}))}
			p := start(t, f, processortest.WithoutCheckpoints())
			check(t, "journal before", journal(p), "start:f")
			if err := p.Cancel(t.Context(), "no more"); err != nil {
				t.Fatal(err)
			}
			check(t, "journal", journal(p), c.journal)
			check(t, "status", string(p.Status()), string(process.StatusCancelled))
			err = nil
			if _, err := f.Process(t.Context(), f.request); err != nil { // the attempt was only late
				t.Error(err)
			}
			check(t, "effects", effectsIn(t, db), c.effects)
		})
	}
}

// An undo takes effect only once, even though one attempt fails and the next one is lost.
func TestUndoTx(t *testing.T) {
	t.Parallel()
	db := books(t)
	undos, losses := 0, 0
	f := function(func(ctx durable.Ctx) (string, error) {
		if _, err := durable.Step(ctx, "book", func(context.Context) (int, error) { return 7, nil },
			durable.UndoTx(db, func(c context.Context, tx pgx.Tx, seat int) error {
				if undos++; undos == 1 {
					return errors.Join(insert(c, tx, "lost"), errors.New("odd"))
				}
				return insert(c, tx, "undo-"+count(seat))
			})); err != nil {
			return "", err
		}
		return "", processor.Reject("full", "no")
	})
	p := start(t, processor.Func(func(ctx context.Context, req *request) (*response, error) {
		resp, err := f.Process(ctx, req)
		if strings.Contains(entries(resp), `"undo"`) {
			if losses++; losses == 1 {
				return nil, &processor.LostError{Err: errors.New("response discarded by the test")}
			}
		}
		return resp, err
	}), processortest.WithoutCheckpoints())
	if err := p.Advance(t.Context(), time.Hour); err != nil || undos != 2 || losses != 2 {
		t.Error(err, undos, losses)
	}
	check(t, "journal", journal(p), "start:f step:book fail:f undo:book")
	check(t, "effects", effectsIn(t, db), "undo-7")
}

// In the database of the engine, steps and undos take effect once although the first attempt at
// each task is lost.
func TestTxOnEngine(t *testing.T) {
	t.Parallel()
	db := books(t)
	f := function(func(ctx durable.Ctx) (string, error) {
		for _, name := range []string{"a", "b"} {
			if _, err := durable.Tx(ctx, name, db, func(c context.Context, tx pgx.Tx) (string, error) {
				return name, insert(c, tx, name)
			}, durable.UndoTx(db, func(c context.Context, tx pgx.Tx, name string) error {
				return insert(c, tx, "undo-"+name)
			})); err != nil {
				return "", err
			}
		}
		return "", processor.Reject("full", "no")
	})
	n := node(t, db.Config().ConnString(), processor.Func(func(ctx context.Context, req *request) (*response, error) {
		resp, err := f.Process(ctx, req)
		if req.GetType() == progressorv1.TaskType_TASK_TYPE_TIMEOUT && req.GetAttempt() == 1 {
			return nil, &processor.LostError{Err: errors.New("response discarded by the test")}
		}
		return resp, err
	}))
	begin(t, n)
	stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)
	check(t, "effects", effectsIn(t, db), "a b undo-b undo-a")
}
