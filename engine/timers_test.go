package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// words is a processor that executes the instructions in its args, such as "set 50ms,complete". It
// ignores other texts.
func words(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	b := processor.Result().Response(r.GetArgs())
	for sentence := range strings.SplitSeq(string(r.GetArgs()), ",") {
		if _, err := follow(b, strings.Fields(sentence)); err != nil {
			return nil, err
		}
	}
	return b.Done()
}

// follow adds the effect of an instruction to a result, or returns the error that the instruction
// requests. It reports whether the instruction is known.
func follow(b *processor.ResultBuilder, sentence []string) (known bool, err error) {
	if len(sentence) == 0 {
		return false, nil
	}
	object := sentence[len(sentence)-1]
	d, err := time.ParseDuration(object)
	if err != nil && slices.Contains([]string{"set", "at", "remove", "name"}, sentence[0]) {
		return true, err
	}
	switch sentence[0] {
	case "set":
		b.SetTimerAfter(d)
	case "at":
		b.SetTimerAt(time.Now().Add(d))
	case "unset":
		b.UnsetTimers()
	case "remove":
		b.RemoveAfter(d)
	case "name":
		b.SetNamedTimerAfter(sentence[1], d)
	case "drop":
		b.UnsetNamedTimer(object)
	case "complete":
		b.Complete()
	case "gone":
		b.Remove()
	case "fail":
		return true, processor.Fail(cmp.Or(strings.Join(sentence[1:], " "), "asked"), "it was asked to")
	case "break":
		return true, processor.Fail("hopeless", "it was asked to").NonRetryable()
	case "reject":
		return true, processor.Reject("asked", "it was asked to")
	case "event":
		b.Event([]byte(object))
	case "state":
		b.AuxState([]byte(object))
	case "respond":
		b.Response([]byte(object))
	case "ok":
	default:
		return false, nil
	}
	return true, nil
}

// fired is a fired timer.
type fired struct {
	process, name string
	at            time.Time
	scheduled     time.Time
	context       string
	attempt       int32
}

// timerRecorder is a processor that follows words and records the fired timers.
type timerRecorder struct {
	mu    sync.Mutex
	fired []fired
}

func (c *timerRecorder) processor() byTask {
	return byTask{initTask: words, callTask: words,
		timeoutTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.fired = append(c.fired, fired{
				r.GetProcess().GetProcessId(), r.GetTimerName(), time.Now(), r.GetScheduledTime().AsTime(),
				string(r.GetContext()), r.GetAttempt(),
			})
			return processor.Result().Done()
		}}
}

func (c *timerRecorder) all() []fired {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.fired)
}

func (c *timerRecorder) count() int { return len(c.all()) }

func TestTimers(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	c := &timerRecorder{}
	n := start(t, dsn, c.processor())
	rows := openDB(t, dsn)
	pending := func(id string) string {
		return strings.Join(rows.texts(t,
			"SELECT task_type || ' ' || timer_name FROM schedule WHERE process_id = $1 ORDER BY timer_name", id), ",")
	}
	ctx := t.Context()
	if _, err := n.Start(ctx, engine.StartParams{
		Key: key("p"), Args: []byte("set 1h"), Context: []byte("of the start"),
	}); err != nil {
		t.Fatal(err)
	}
	p, err := n.GetProcess(ctx, key("p"), nil, 0)
	if err != nil || len(p.GetTimers()) != 1 || time.Until(p.GetTimers()[0].GetFireTime().AsTime()) < 59*time.Minute ||
		p.GetTimers()[0].GetStatus() != progressorv1.TaskStatus_TASK_STATUS_WAITING {
		t.Errorf("timers %v, %v", p.GetTimers(), err)
	}
	for _, step := range []struct{ args, want string }{
		{"", "TIMEOUT "}, // no action: the timers stay
		{"name a 1h,name b 1h", "TIMEOUT ,TIMEOUT a,TIMEOUT b"},
		{"set 2h", "TIMEOUT ,TIMEOUT a,TIMEOUT b"}, // only the default timer is replaced
		{"drop a", "TIMEOUT ,TIMEOUT b"},
		{"drop unknown", "TIMEOUT ,TIMEOUT b"},
		{"remove 1h", "REMOVE ,TIMEOUT b"},
		{"unset", ""},
		{"unset,name c 1h", "TIMEOUT c"},
		{"set 1h,name c 2h", "TIMEOUT ,TIMEOUT c"},
		{"unset", ""},
	} {
		n.called(t, "p", step.args)
		if got := pending("p"); got != step.want {
			t.Errorf("after %q: %q, want %q", step.args, got, step.want)
		}
	}
	if c.count() != 0 {
		t.Errorf("fired %v", c.all())
	}
	if _, err := n.Call(ctx, engine.CallParams{
		Key: key("p"), Args: []byte("at 30ms,name x 60ms"), Context: []byte("of the call"),
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both timers fire", func() bool { return c.count() == 2 })
	for k, f := range c.all() {
		if f.name != []string{"", "x"}[k] || f.context != "of the call" || f.attempt != 1 {
			t.Errorf("fired %+v", f)
		}
		if late := f.at.Sub(f.scheduled); late < 0 || late > time.Second {
			t.Errorf("fired %s after its due time", late)
		}
	}
	// The end of a process removes its timers.
	n.started(t, "q")
	n.called(t, "q", "set 1h,name a 1h")
	n.called(t, "q", "complete")
	if n.status(t, "q") != "COMPLETED" || pending("q") != "" {
		t.Errorf("%s with timers %q", n.status(t, "q"), pending("q"))
	}
}

func TestRemoveTimer(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, (&timerRecorder{}).processor())
	n.started(t, "p")
	n.called(t, "p", "remove 30ms")
	eventually(t, "the process is removed", func() bool { return n.status(t, "p") == "" })
	n.started(t, "q")
	if ans := n.called(t, "q", "gone"); string(ans.Response) != "gone" {
		t.Errorf("%+v", ans)
	}
	eventually(t, "its rows are deleted", func() bool {
		return openDB(t, dsn).count(t, `SELECT (SELECT count(*) FROM processes) + (SELECT count(*) FROM events) +
			(SELECT count(*) FROM tasks)`) == 0
	})
}

// A process with a history of 12,000 events can be removed, and its ID can then be reused.
func TestRemoveLongHistory(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		if string(r.GetArgs()) != "more" {
			return words(ctx, r)
		}
		b := processor.Result()
		for range 1000 {
			b.Event([]byte("e"))
		}
		return b.Done()
	}})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", HistoryMode: progressorv1.HistoryMode_HISTORY_MODE_NONE})
	n.started(t, "p")
	for range 12 {
		n.called(t, "p", "more")
	}
	n.called(t, "p", "gone")
	if n.status(t, "p") != "" {
		t.Error("the removed process exists")
	}
	eventually(t, "the ID can be used again", func() bool {
		_, err := n.Start(t.Context(), engine.StartParams{Key: key("p")})
		return err == nil
	})
}

// A zero timer runs as the next task of its process, on the same node.
func TestZeroTimerLoop(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	j := newJournal()
	n := start(t, dsn, j.recording(processor.BenchLoop()), func(c *engine.Config) { c.ScanInterval = time.Hour })
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("p"), Args: processor.LoopArgs(100)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loop has ended", func() bool { return n.status(t, "p") == "COMPLETED" })
	j.inOrder(t, "p", timeoutTask, 100)
	p, err := n.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil || p.GetLastEventId() != 101 {
		t.Errorf("%d events, %v", p.GetLastEventId(), err)
	}
}

// A waiting call runs before a due timer.
func TestCallBeforeTimer(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	j := newJournal()
	n := start(t, dsn, j.recording(byTask{callTask: func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		if err := g.pass(ctx, r, true); err != nil {
			return nil, err
		}
		return words(ctx, r)
	}, timeoutTask: answers(processor.Result())}))
	n.started(t, "p")
	first := n.calling("p", "set 0s")
	receive(t, "the call runs", g.entered)
	second := n.calling("p", "second")
	rows := openDB(t, dsn)
	eventually(t, "the second call waits", func() bool { return rows.count(t, "SELECT count(*) FROM schedule") == 1 })
	g.release()
	for _, c := range []<-chan result{first, second} {
		if res := receive(t, "call", c); res.err != nil {
			t.Error(res.err)
		}
	}
	eventually(t, "the timer has fired", func() bool {
		return rows.count(t, "SELECT count(*) FROM tasks WHERE task_type = 'TIMEOUT'") == 1
	})
	got := rows.texts(t, `SELECT task_type::text || coalesce(' ' || convert_from(args, 'UTF8'), '') FROM tasks
		WHERE process_id = 'p' ORDER BY running_time`)
	if strings.Join(got, ",") != "INIT start,CALL set 0s,CALL second,TIMEOUT" {
		t.Errorf("the tasks ran in the order %q", got)
	}
}

// A timer that becomes due while its process is busy is BLOCKED, and runs right after the task.
func TestTimerDueWhileBusy(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	c := &timerRecorder{}
	g := newGate()
	defer g.release()
	p := c.processor()
	p[callTask] = g.heldBefore(words)
	n := start(t, dsn, p, func(c *engine.Config) { c.ScanInterval = 10 * time.Second })
	n.started(t, "p")
	n.called(t, "p", "set 500ms")
	hold := n.calling("p", "hold")
	receive(t, "the process is busy", g.entered)
	rows := openDB(t, dsn)
	eventually(t, "the timer is due", func() bool {
		return rows.count(t, `SELECT count(*) FROM schedule
			WHERE scheduled_time < statement_timestamp() - interval '20 ms'`) == 1
	})
	if m, err := n.GetProcess(t.Context(), key("p"), nil, 0); err != nil ||
		m.GetTimers()[0].GetStatus() != progressorv1.TaskStatus_TASK_STATUS_BLOCKED {
		t.Errorf("%v, %v", m, err)
	}
	if c.count() != 0 {
		t.Error("the timer fired during the call")
	}
	g.release()
	freed := time.Now()
	receive(t, "the call", hold)
	eventually(t, "the timer fires", func() bool { return c.count() == 1 })
	if late := c.all()[0].at.Sub(freed); late > time.Second {
		t.Errorf("the timer fired %s after the call", late)
	}
}

// Timers come due at the moment at which the last call of their process ends. None of them waits
// for the next regular scan.
func TestTimerDueAsCallEnds(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	c := &timerRecorder{}
	p := c.processor()
	p[callTask] = func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		word, when, _ := strings.Cut(string(r.GetArgs()), " ")
		at, err := time.Parse(time.RFC3339Nano, when)
		if err != nil {
			return nil, err
		}
		if word == "set" {
			return processor.Result().SetTimerAt(at).Done()
		}
		<-time.After(time.Until(at))
		return processor.Result().Done()
	}
	n := start(t, dsn, p, func(c *engine.Config) { c.ScanInterval = 10 * time.Second })
	n.started(t, "p")
	const rounds = 40
	for k := range rounds {
		due := time.Now().Add(20 * time.Millisecond)
		n.called(t, "p", "set "+due.Format(time.RFC3339Nano))
		// The due times range from shortly before to shortly after the end of the call.
		end := due.Add(time.Duration(k%20-15) * 200 * time.Microsecond)
		n.called(t, "p", "until "+end.Format(time.RFC3339Nano))
		eventually(t, "the timer fires", func() bool { return c.count() == k+1 })
	}
	var worst time.Duration
	for _, f := range c.all() {
		worst = max(worst, f.at.Sub(f.scheduled))
	}
	t.Logf("the latest was %s late", worst)
	if worst > 2*time.Second {
		t.Errorf("the latest was %s late", worst)
	}
}

// A timer whose process is locked when it is due does not wait for the next regular scan.
func TestTimerOfHeldProcess(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	c := &timerRecorder{}
	n := start(t, dsn, c.processor(), func(c *engine.Config) { c.ScanInterval = 10 * time.Second })
	n.started(t, "p")
	rows := openDB(t, dsn)
	held, err := rows.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.called(t, "p", "set 50ms")
	storagetest.Exec(t, held, "SELECT 1 FROM processes FOR UPDATE")
	eventually(t, "the timer is due", func() bool {
		return rows.count(t, `SELECT count(*) FROM schedule
			WHERE scheduled_time < statement_timestamp() - interval '700 ms'`) == 1
	})
	if c.count() != 0 {
		t.Error("the timer fired although its process is locked")
	}
	freed := time.Now()
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the timer fires", func() bool { return c.count() == 1 })
	fired := c.all()[0]
	if late, held := fired.at.Sub(freed), freed.Sub(fired.scheduled); late > held+2*time.Second {
		t.Errorf("the timer fired %s after its process was unlocked, after %s", late, held)
	}
}

// On an idle node, timers are on time.
func TestTimerLateness(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	c := &timerRecorder{}
	n := start(t, dsn, c.processor())
	const timers = 60
	for k := range timers {
		id := fmt.Sprint("p", k)
		n.started(t, id)
		n.called(t, id, fmt.Sprintf("set %dms", 100+k*7%150))
	}
	eventually(t, "all timers have fired", func() bool { return c.count() == timers })
	var late []time.Duration
	for _, f := range c.all() {
		late = append(late, f.at.Sub(f.scheduled))
	}
	slices.Sort(late)
	t.Logf("late: least %s, median %s, most %s", late[0], late[timers/2], late[timers-1])
	if late[0] < -time.Millisecond || late[timers/2] > 200*time.Millisecond || late[timers-1] > 2*time.Second {
		t.Errorf("late: least %s, median %s, most %s", late[0], late[timers/2], late[timers-1])
	}
}
