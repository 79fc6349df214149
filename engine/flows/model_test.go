package flows_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

var (
	modelSeed = flag.Uint64("flows.seed", 0, "the first seed of TestRandomRuns; 0 means the current time")
	modelTime = flag.Duration("flows.time", 5*time.Second, "how long TestRandomRuns starts new batches of runs")
)

const (
	modelRuns     = 10  // per batch
	modelCommands = 4   // maximum number per run
	modelRounds   = 400 // random events before the runs of a batch must end
)

// TestRandomRuns starts runs of random templates on an engine with a worker, and causes random
// results, failures, lost leases, cancels, retries, skips and restarts of the engine. Every run
// must end, and its stored rows must agree with the results of the worker. The same seed produces
// the same templates and commands, but not the same order of concurrent events.
func TestRandomRuns(t *testing.T) {
	t.Parallel()
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	dsn := storagetest.DSN(t)
	over := time.Now().Add(*modelTime)
	for ; ; seed++ {
		m := &model{t: t, dsn: dsn, seed: seed, done: map[string]string{}, lost: map[string]bool{}}
		m.rand = rand.New(rand.NewPCG(seed, 0))
		m.run()
		if t.Failed() || time.Now().After(over) {
			return
		}
	}
}

// model is one batch of runs, with the results that its worker has sent.
type model struct {
	t    *testing.T
	dsn  string
	seed uint64
	rand *rand.Rand
	runs []*modelRun

	stop   chan struct{}         // stops the worker when it is closed
	worker sync.WaitGroup        // waits until the worker has stopped
	leases []*progressorv1.Lease // leases that the worker has not ended; only the worker uses them

	mu   sync.Mutex // guards the fields below
	node *node
	calm bool              // the worker ends all leases successfully
	done map[string]string // digest of the result of each job whose result was certainly stored
	lost map[string]bool   // jobs for which the worker does not know whether its result was stored
}

// modelRun is a run of a random template.
type modelRun struct {
	id, template string
	commands     int  // number of commands that were sent to the run
	forced       bool // a command cancelled the run with force
	skipped      bool // a command skipped one of its steps
}

// run starts the runs, causes random events, waits until the runs have ended, and checks their
// rows.
func (m *model) run() {
	m.node = startModel(m.t, m.dsn)
	m.node.put(m.t, "pull", `{"type": "inner",
		"steps": [{"step_id": "in", "job": {}, "compensation": {"name": "undo"}}]}`)
	for i := range modelRuns {
		r := &modelRun{id: fmt.Sprintf("m%d-%d", m.seed, i), template: m.template()}
		m.node.put(m.t, "pull", `{"type": "t`+fmt.Sprint(i)+`", `+r.template+`}`)
		m.node.run(m.t, "pull", fmt.Sprint("t", i), r.id, m.payload())
		m.runs = append(m.runs, r)
	}
	m.work()
	for range modelRounds {
		m.step()
	}
	m.end()
	close(m.stop)
	m.worker.Wait()
	for _, r := range m.runs {
		m.check(r)
	}
	m.node.Stop()
}

// startModel starts an engine with short leases.
func startModel(t *testing.T, dsn string) *node {
	n := startWith(t, dsn, processor.Func(modelProcess))
	pull := &progressorv1.ProcessorConfig_Pull{Pull: &progressorv1.PullProcessor{LeaseDuration: seconds(1)}}
	if _, err := n.PutNamespace(context.Background(), &progressorv1.Namespace{
		Namespace: "pull", Processor: &progressorv1.ProcessorConfig{Transport: pull},
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// modelProcess is the processor of steps that are processes. The args say what the process does.
func modelProcess(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	var args struct {
		Do    string `json:"do"`
		Bytes int    `json:"bytes"`
	}
	_ = json.Unmarshal(r.GetArgs(), &args) // other args are ignored
	switch {
	case r.GetType() != progressorv1.TaskType_TASK_TYPE_INIT, args.Do == "nothing":
		return processor.Result().Done()
	case args.Do == "fail":
		return nil, processor.Fail("broken", "%s", strings.Repeat("<", args.Bytes)).NonRetryable()
	}
	return processor.Result().JSONResponse(strings.Repeat("<", args.Bytes)).Complete().Done()
}

// work starts a worker that polls and answers until stop is closed.
func (m *model) work() {
	m.stop = make(chan struct{})
	m.worker.Go(func() {
		r := rand.New(rand.NewPCG(m.seed, 1))
		for {
			select {
			case <-m.stop:
				return
			default:
				m.workOnce(r)
			}
		}
	})
}

// workOnce polls once. If the worker then has leases, workOnce takes one of them and ends it, or
// forgets it like a worker that is lost.
func (m *model) workOnce(r *rand.Rand) {
	m.mu.Lock()
	n, calm := m.node, m.calm
	m.mu.Unlock()
	leases, err := n.Poll(context.Background(), pull.PollParams{
		Namespaces: []string{"pull"}, WorkerID: "w", Max: 8, Wait: 10 * time.Millisecond,
	})
	if err != nil {
		return // the engine is stopping
	}
	m.leases = append(m.leases, leases...)
	if len(m.leases) == 0 {
		return
	}
	i := r.IntN(len(m.leases))
	l := m.leases[i]
	m.leases = append(m.leases[:i], m.leases[i+1:]...)
	if !calm && r.IntN(20) == 0 {
		return // the worker is lost
	}
	m.answerLease(r, l, calm)
}

// answerLease ends a lease with a random outcome. If calm is true, the outcome is a success, or a
// cancellation if the engine has requested one.
func (m *model) answerLease(r *rand.Rand, l *progressorv1.Lease, calm bool) {
	d, err := m.current().BeatLeases(context.Background(), &progressorv1.HeartbeatRequest{
		WorkerId: "w", Beats: []*progressorv1.LeaseBeat{{LeaseToken: l.GetLeaseToken()}},
	})
	cancelRequested := err == nil && d[0].GetDirective() == progressorv1.LeaseDirective_DIRECTIVE_CANCEL
	if cancelRequested && (calm || r.IntN(2) == 0) {
		m.store(l, engine.LeaseAnswer{Acknowledged: new(string)}, "")
		return
	}
	if !calm && r.IntN(5) == 0 {
		failure := &progressorv1.Failure{
			Reason: "broken", Message: strings.Repeat("<", min(modelSize(r), 1<<20)), NonRetryable: r.IntN(2) == 0,
		}
		m.store(l, engine.LeaseAnswer{Response: &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Failure{Failure: failure},
		}}, "")
		return
	}
	size := modelSize(r)
	if calm {
		size = 10
	}
	text := l.GetJob().GetJobId() + strings.Repeat("<", size)
	result := ""
	if size < 1<<20-1000 {
		result = digest(text)
	}
	m.store(l, engine.LeaseAnswer{Response: &progressorv1.ProcessResponse{
		Outcome: &progressorv1.ProcessResponse_Result{
			Result: &progressorv1.Result{JobResult: structpb.NewStringValue(text)},
		},
	}}, result)
}

func digest(text string) string {
	h := fnv.New64()
	_, _ = h.Write([]byte(text)) // returns no error
	return fmt.Sprint(h.Sum64())
}

func (m *model) current() *node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node
}

// store sends an answer until it gets a response that shows whether the answer was stored. result
// is the digest of the result in the answer, or "" if the answer contains no result to compare.
func (m *model) store(l *progressorv1.Lease, a engine.LeaseAnswer, result string) {
	job, unsure := l.GetJob().GetJobId(), false
	for {
		err := m.current().CompleteLease(context.Background(), l.GetLeaseToken(), a)
		switch {
		case err == nil && result != "":
			m.mu.Lock()
			m.done[job] = result
			m.mu.Unlock()
			return
		case err == nil:
			return
		case errors.Is(err, process.ErrFenced) && unsure:
			m.mu.Lock()
			m.lost[job] = true
			m.mu.Unlock()
			return
		case errors.Is(err, process.ErrFenced):
			return
		}
		select {
		case <-m.stop:
			return
		default:
			unsure = true
		}
	}
}

// step causes one random event: a restart of the engine, a command, or the answer to a wait.
func (m *model) step() {
	ctx := context.Background()
	switch r := m.runs[m.rand.IntN(len(m.runs))]; m.rand.IntN(60) {
	case 0:
		m.restart()
	case 1, 2:
		m.command(r)
	default:
		m.answerWait(ctx)
	}
}

// restart stops the engine and starts another one, in one of three calls.
func (m *model) restart() {
	if !m.oneIn(3) {
		return
	}
	m.node.Stop()
	n := startModel(m.t, m.dsn)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.node = n
}

// command sends a random command to a run. The run may reject it.
func (m *model) command(r *modelRun) {
	if r.commands++; r.commands > modelCommands {
		return
	}
	ctx, n := context.Background(), m.node
	cancel := &progressorv1.CancelRunRequest{Namespace: "pull", RunId: r.id, Reason: "random"}
	step := fmt.Sprintf("s%d", m.rand.IntN(6))
	var index *int32
	if m.oneIn(2) {
		index = new(int32)
		*index = m.rand.Int32N(3)
	}
	switch m.rand.IntN(8) {
	case 0, 1:
		_, _ = n.Cancel(ctx, cancel, kim)
	case 2:
		r.forced, cancel.Force = true, true
		_, _ = n.Cancel(ctx, cancel, kim)
	case 3, 4:
		skip := &progressorv1.SkipStepRequest{Namespace: "pull", RunId: r.id, StepId: step, Index: index}
		_, err := n.Skip(ctx, skip, kim)
		r.skipped = r.skipped || err == nil
	case 5:
		key := process.Key{Namespace: "pull", ProcessID: process.StepPrefix + r.id + "/" + step}
		_, _ = m.node.Jobs.Cancel(ctx, key, "random", kim)
	default:
		_, err := n.Retry(ctx, &progressorv1.RetryRunRequest{Namespace: "pull", RunId: r.id}, kim)
		if err != nil {
			r.commands-- // rejected, because the run has not ended
		}
	}
}

// answerWait answers one open wait of any run.
func (m *model) answerWait(ctx context.Context) {
	var run, step, token string
	var index int32
	row := m.node.DB.QueryRow(ctx, `SELECT run_id, step_id, index, token FROM flow_steps WHERE token IS NOT NULL
		ORDER BY random() LIMIT 1`)
	if row.Scan(&run, &step, &index, &token) != nil {
		return // no wait is open
	}
	r := &progressorv1.CompleteStepRequest{Namespace: "pull", RunId: run, StepId: step, Token: token}
	if index >= 0 {
		r.Index = &index
	}
	switch n := m.rand.IntN(6); {
	case n == 0:
		r.Outcome = &progressorv1.CompleteStepRequest_Cancelled{Cancelled: &progressorv1.Cancelled{}}
	case n == 1 && !m.calm:
		failure := &progressorv1.Failure{Reason: "broken", Message: strings.Repeat("<", min(m.size(), 1<<20))}
		r.Outcome = &progressorv1.CompleteStepRequest_Failure{Failure: failure}
	default:
		text := strings.Repeat("<", m.size())
		r.Outcome = &progressorv1.CompleteStepRequest_Result{Result: structpb.NewStringValue(text)}
	}
	_, _ = m.node.Complete(ctx, r, kim) // the wait may have ended in the meantime, or the answer may be too large
}

// end sets calm, and waits until all runs have ended. It reports runs that do not end, and cancels
// them with force.
func (m *model) end() {
	m.mu.Lock()
	m.calm = true
	m.mu.Unlock()
	over := time.Now().Add(testTimeout)
	open := func() (open []*modelRun) {
		for _, r := range m.runs {
			if run, err := m.node.Get(context.Background(), "pull", r.id, 0); err != nil ||
				run.GetFinishedTime() == nil {
				open = append(open, r)
			}
		}
		return open
	}
	for len(open()) > 0 && time.Now().Before(over) {
		m.answerWait(context.Background())
	}
	left := func() int {
		return enginetest.Count(m.t, m.node.DB, `SELECT count(*) FROM processes
			WHERE status NOT IN ('COMPLETED', 'CANCELLED', 'ERROR') AND removed_time IS NULL`)
	}
	// A run may have ended before the processes and runs that its steps have started.
	for left() > 0 && time.Now().Before(over) {
		m.answerWait(context.Background())
	}
	if n := left(); n > 0 {
		m.t.Errorf("seed %d: %d processes do not end", m.seed, n)
	}
	for _, r := range open() {
		m.fail(r, "the run does not end")
		force := &progressorv1.CancelRunRequest{Namespace: "pull", RunId: r.id, Force: true}
		if _, err := m.node.Cancel(context.Background(), force, kim); err != nil {
			m.fail(r, "a cancel with force does not end the run: %v", err)
		}
	}
}

// fail reports an error of a run, with its state, template and events.
func (m *model) fail(r *modelRun, format string, args ...any) {
	m.t.Helper()
	run, _ := m.node.Get(context.Background(), "pull", r.id, 0)
	m.t.Errorf("seed %d, run %s: %s\n%s\n%s", m.seed, r.id, fmt.Sprintf(format, args...), shortText(run), r.template)
	for _, e := range m.events(r) {
		m.t.Log(e)
	}
}

func shortText(r *progressorv1.Run) string {
	s := runSummary(r)
	if f := r.GetFailure(); f != nil {
		text, _ := protojson.Marshal(f)
		s += " " + string(text[:min(len(text), 300)])
	}
	return s
}
