package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The sizes and limits of the workload flows.
const (
	flowClients = 128
	graphSteps  = 1000
	eachItems   = 10_000
	singleRuns  = 200
	lineSteps   = 3
	flowsAtMost = 10 * time.Minute
)

// stepProcessor is the processor of steps. It does nothing. If noted is set, it records when each
// step begins.
type stepProcessor struct {
	mu     sync.Mutex
	noted  bool
	begins map[string]time.Time
}

// Process executes a step.
func (p *stepProcessor) Process(
	_ context.Context, r *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	if p.noted {
		p.mu.Lock()
		p.begins[r.GetProcess().GetProcessId()] = time.Now()
		p.mu.Unlock()
	}
	return processor.Result().Done()
}

// flows measures how many runs of three steps in sequence end per second, how many steps of
// graphs and items of a for_each end per second, and how soon a step begins after the previous one.
func (r *runner) flows(ctx context.Context, v variant) error {
	line, graph, items, latency := v.row(subjectEngine), v.row(subjectEngine), v.row(subjectEngine),
		v.row(subjectEngine)
	n := r.command.Runs
	graphs := max(1, n/500)
	line.Workload, line.Note = v.workload+": line",
		fmt.Sprintf("%d runs of %d steps, started by %d clients", n, lineSteps, flowClients)
	graph.Workload, graph.Note = v.workload+": graph",
		fmt.Sprintf("%d runs of %d steps that depend on nothing, one run at a time; operations are steps", graphs,
			graphSteps)
	items.Workload, items.Note = v.workload+": for_each",
		fmt.Sprintf("one run with %d items; operations are items", eachItems)
	latency.Workload, latency.Note = v.workload+": latency",
		"one run at a time; latency is the time between the beginnings of two steps"
	p := &stepProcessor{begins: map[string]time.Time{}}
	err := r.onEngine(ctx, v.history, p, line, func(d *scratch, s *site) (acknowledged, error) {
		for _, t := range flowTemplates() {
			if _, err := s.flows.PutTemplate(ctx, &progressorv1.PutTemplateRequest{Template: t}); err != nil {
				return nil, err
			}
		}
		err := r.runsOf(ctx, d, s, "line", int64(n), line, func(ctx context.Context) error {
			return each(ctx, n, flowClients,
				func(ctx context.Context, _ int) error { return s.startRun(ctx, "line", "", nil) })
		})
		if err == nil {
			err = r.runsOf(ctx, d, s, "graph", int64(graphs)*graphSteps, graph,
				func(ctx context.Context) error { return s.startGraphs(ctx, d, graphs) })
		}
		if err == nil {
			list := make([]*structpb.Value, eachItems)
			for i := range list {
				list[i] = structpb.NewNumberValue(float64(i))
			}
			err = r.runsOf(ctx, d, s, "for_each", eachItems, items, func(ctx context.Context) error {
				return s.startRun(ctx, "each", "", structpb.NewListValue(&structpb.ListValue{Values: list}))
			})
		}
		if err == nil {
			err = r.oneRun(ctx, d, s, p, latency)
		}
		return acknowledged{
			process.TaskInit: int64(n)*(lineSteps+1) + int64(graphs)*(graphSteps+1) + eachItems + 1 +
				singleRuns*(lineSteps+1)}, err
	})
	for _, row := range []*Row{graph, items, latency} {
		row.Checked = line.Checked
	}
	r.report.Rows = append(r.report.Rows, line, graph, items, latency)
	return err
}

func flowTemplates() []*progressorv1.Template {
	job := func(id string) *progressorv1.StepTemplate {
		return &progressorv1.StepTemplate{StepId: id,
			Action: &progressorv1.StepTemplate_Job{Job: &progressorv1.JobAction{Name: "step"}}}
	}
	line := &progressorv1.Template{Namespace: namespaceName, Type: "line"}
	for i := range lineSteps {
		line.Steps = append(line.Steps, job(fmt.Sprintf("s%d", i)))
	}
	graph := &progressorv1.Template{Namespace: namespaceName, Type: "graph",
		StepOrder: progressorv1.StepOrder_STEP_ORDER_GRAPH}
	for i := range graphSteps {
		graph.Steps = append(graph.Steps, job(fmt.Sprintf("s%d", i)))
	}
	items := job("items")
	items.ForEach = &progressorv1.ForEach{Items: "payload"}
	return []*progressorv1.Template{line, graph,
		{Namespace: namespaceName, Type: "each", Steps: []*progressorv1.StepTemplate{items}}}
}

func (s *site) startRun(ctx context.Context, templateType, runID string, payload *structpb.Value) error {
	_, err := s.flows.Start(ctx,
		&progressorv1.StartRunRequest{Namespace: namespaceName, Type: templateType, RunId: runID, Payload: payload},
		process.Actor{})
	return err
}

// startGraphs starts n graphs, one after another. It does not wait for the last one.
func (s *site) startGraphs(ctx context.Context, d *scratch, n int) error {
	for i := range n {
		if i > 0 {
			if err := d.waitRuns(ctx); err != nil {
				return err
			}
		}
		if err := s.startRun(ctx, "graph", "", nil); err != nil {
			return err
		}
	}
	return nil
}

// runsOf starts runs and waits until none is open.
func (r *runner) runsOf(
	ctx context.Context, d *scratch, s *site, name string, operations int64, row *Row,
	start func(context.Context) error,
) error {
	r.step("flows, " + name)
	return r.spentOn(ctx, d, s, operations, row, func() error {
		if err := start(ctx); err != nil {
			return err
		}
		return d.waitRuns(ctx)
	})
}

// waitRuns waits until no run is open. ORDER BY makes PostgreSQL read the index of unfinished runs.
// With EXISTS, it reads the whole table if it was analyzed while many runs were unfinished.
func (d *scratch) waitRuns(ctx context.Context) error {
	return d.waitNone(ctx, flowsAtMost, 5*time.Millisecond, `SELECT count(*) FROM (
		SELECT FROM flow_runs WHERE finished_time IS NULL ORDER BY namespace, created_time, run_id LIMIT 1
	) AS unfinished`)
}

// oneRun executes one run after the other. Unlike the other phases, it does not begin with a
// checkpoint. After a checkpoint, page images would be a large part of the WAL of so few runs.
func (r *runner) oneRun(ctx context.Context, d *scratch, s *site, p *stepProcessor, row *Row) error {
	r.step("flows, latency")
	var latencies histogram
	p.noted = true
	if err := d.analyze(ctx); err != nil {
		return err
	}
	spent, err := r.meterOf(s).measure(ctx, func() error {
		for i := range singleRuns {
			id := fmt.Sprint("single-", i)
			if err := s.startRun(ctx, "line", id, nil); err != nil {
				return err
			}
			if err := d.waitRuns(ctx); err != nil {
				return err
			}
			p.mu.Lock()
			for step := 1; step < lineSteps; step++ {
				latencies.add(p.begins[stepJob(id, step)].Sub(p.begins[stepJob(id, step-1)]))
			}
			p.mu.Unlock()
		}
		return nil
	})
	row.fill(singleRuns, spent.elapsed, &latencies, spent)
	return err
}

// stepJob returns the process of a step's job.
func stepJob(runID string, step int) string {
	return fmt.Sprintf("%s%s/s%d", process.StepPrefix, runID, step)
}
