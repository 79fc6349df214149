package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

const exampleFlows = "../../examples/flows/"

// exampleRuns runs templates of examples/flows in its own engine, in the namespace flows, with a
// worker for their jobs.
type exampleRuns struct {
	t    *testing.T
	d    *clitest.Daemon
	flow progressorv1connect.FlowServiceClient
}

// startExample puts a template, and runs a worker for its jobs.
func startExample(t *testing.T, templateType string, handle func(*client.Worker)) *exampleRuns {
	t.Helper()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "flows", "--pull")
	x := &exampleRuns{t, d, client.New(d.URL).Flow}
	d.Client.OK(t, "template", "put", "flows", "-f", exampleFlows+templateType+".yaml")
	w := client.NewWorker(client.New(d.URL), []string{"flows"}, client.WithLeaseDuration(6*time.Second),
		client.WithStopGrace(time.Millisecond))
	handle(w)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return x
}

// start starts a run with a payload that is written as JSON.
func (x *exampleRuns) start(templateType, runID, payload string) {
	x.t.Helper()
	v := &structpb.Value{}
	if err := protojson.Unmarshal([]byte(payload), v); err != nil {
		x.t.Fatal(err)
	}
	_, err := x.flow.StartRun(x.t.Context(),
		&progressorv1.StartRunRequest{Namespace: "flows", Type: templateType, RunId: runID, Payload: v})
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *exampleRuns) get(runID string, wait time.Duration) *progressorv1.Run {
	x.t.Helper()
	resp, err := x.flow.GetRun(x.t.Context(),
		&progressorv1.GetRunRequest{Namespace: "flows", RunId: runID, AwaitEnd: durationpb.New(wait)})
	if err != nil {
		x.t.Fatal(err)
	}
	return resp.GetRun()
}

// until reads a run repeatedly until a condition holds.
func (x *exampleRuns) until(runID, what string, is func(*progressorv1.Run) bool) {
	x.t.Helper()
	clitest.Eventually(x.t, what, func() error {
		if r := x.get(runID, 0); !is(r) {
			return errors.New(r.String())
		}
		return nil
	})
}

// ends waits for the end of a run, and checks its status and those of its steps.
func (x *exampleRuns) ends(runID, want string) *progressorv1.Run {
	x.t.Helper()
	r := x.get(runID, clitest.DaemonWait)
	got := strings.TrimPrefix(r.GetStatus().String(), "RUN_STATUS_") + ":"
	for _, s := range r.GetSteps() {
		got += " " + s.GetStepId() + " " + strings.TrimPrefix(s.GetStatus().String(), "STEP_STATUS_")
		if s.CompensationStatus != nil {
			got += " undo " + strings.TrimPrefix(s.GetCompensationStatus().String(), "STEP_STATUS_")
		}
	}
	if got != want {
		x.t.Fatalf("got  %s\nwant %s\n%v", got, want, r)
	}
	return r
}

func (x *exampleRuns) cancel(runID string) {
	x.t.Helper()
	if _, err := x.flow.CancelRun(x.t.Context(),
		&progressorv1.CancelRunRequest{Namespace: "flows", RunId: runID, Reason: "enough"}); err != nil {
		x.t.Fatal(err)
	}
}

// wait returns the open wait of a run.
func (x *exampleRuns) wait(runID string) (w *progressorv1.OpenWait) {
	x.t.Helper()
	clitest.Eventually(x.t, runID+" waits", func() error {
		resp, err := x.flow.ListOpenWaits(x.t.Context(),
			&progressorv1.ListOpenWaitsRequest{Namespace: "flows", Filter: `run_id = "` + runID + `"`})
		if err != nil {
			x.t.Fatal(err)
		}
		if len(resp.GetWaits()) != 1 {
			return fmt.Errorf("%d waits", len(resp.GetWaits()))
		}
		w = resp.GetWaits()[0]
		return nil
	})
	return w
}

// demo_long_task reports progress, succeeds, and stops when it is cancelled.
func TestExampleLongTask(t *testing.T) {
	t.Parallel()
	type part struct {
		Target string  `json:"target"`
		Parts  float64 `json:"parts"`
	}
	half, goOn := make(chan string, 2), make(chan struct{})
	x := startExample(t, "demo_long_task", func(w *client.Worker) {
		client.Handle(w, "prepare",
			func(_ context.Context, p part) (string, error) { return "room for " + p.Target, nil })
		client.Handle(w, "execute", func(ctx context.Context, p struct {
			part
			Prepared string `json:"prepared"`
		}) (float64, error) {
			client.Report(ctx, 50, fmt.Sprintf("%v of %v parts of %s", p.Parts/2, p.Parts, p.Target))
			half <- p.Prepared
			select {
			case <-goOn:
				return p.Parts, nil
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		})
		client.Handle(w, "finalize", func(context.Context, struct {
			Target   string  `json:"target"`
			Executed float64 `json:"executed"`
		}) (any, error) {
			return nil, nil
		})
	})
	x.start("demo_long_task", "good", `{"target": "a", "parts": 4}`)
	if got := <-half; got != "room for a" {
		t.Errorf("execute got %q", got)
	}
	x.until("good", "progress", func(r *progressorv1.Run) bool { // prepare has the weight 1 of 10, and execute 8
		return r.GetPhase() == "execute" && r.GetProgress().GetPercent() == 50 &&
			r.GetProgress().GetSummary() == "2 of 4 parts of a"
	})
	x.start("demo_long_task", "cancelled", `{"target": "b"}`)
	<-half
	x.cancel("cancelled")
	if r := x.ends("cancelled",
		"CANCELLED: prepare SUCCEEDED execute CANCELLED finalize CANCELLED"); r.GetCancelReason() != "enough" {
		t.Errorf("%v", r)
	}
	close(goOn)
	r := x.ends("good", "SUCCEEDED: prepare SUCCEEDED execute SUCCEEDED finalize SUCCEEDED")
	if got := r.GetResult().GetStructValue().AsMap(); got["target"] != "a" || got["executed"] != 4.0 ||
		got["attempt"] != 1.0 {
		t.Errorf("the result: %v", got)
	}
}

// The work of external_worker_task is done by a program that polls only the list of open waits.
func TestExampleOutsideWorker(t *testing.T) {
	t.Parallel()
	x := startExample(t, "external_worker_task", func(w *client.Worker) {
		client.Handle(w, "submit", func(_ context.Context, p map[string]string) (map[string]string, error) {
			return map[string]string{"text": p["document"], "run": p["answer_to"]}, nil
		})
		client.Handle(w, "store", func(_ context.Context, p map[string]string) (string, error) {
			return p["document"] + ": " + p["text"], nil
		})
	})
	// Answer with only the token, as a program does that has received the token from the job.
	x.start("external_worker_task", "token", `{"document": "Guten Tag"}`)
	w := x.wait("token")
	if w.GetTitle() != "Translate Guten Tag" || w.GetInput().GetStructValue().AsMap()["run"] != "token" {
		t.Errorf("the wait: %v", w)
	}
	answer := func(token string, result any) error {
		v, err := structpb.NewValue(result)
		if err != nil {
			t.Fatal(err)
		}
		_, err = x.flow.CompleteStep(t.Context(), &progressorv1.CompleteStepRequest{
			Namespace: "flows", RunId: "token", StepId: "translate", Token: token, WorkerId: "by hand",
			Outcome: &progressorv1.CompleteStepRequest_Result{Result: v},
		})
		return err
	}
	good := map[string]any{"text": "Good day"}
	if answer("guessed", good) == nil || answer(w.GetToken(), map[string]any{"words": 2}) == nil {
		t.Error("an answer with another token, or without a text, is accepted")
	}
	if err := answer(w.GetToken(), good); err != nil {
		t.Fatal(err)
	}
	if answer(w.GetToken(), map[string]any{"text": "Hello"}) == nil {
		t.Error("a second, different answer is accepted")
	}
	if err := answer(w.GetToken(), good); err != nil {
		t.Errorf("the same answer again: %v", err)
	}
	if r := x.ends("token", "SUCCEEDED: submit SUCCEEDED translate SUCCEEDED store "+
		"SUCCEEDED"); r.GetResult().GetStringValue() != "Guten Tag: Good day" ||
		r.GetSteps()[1].GetWorkerId() != "by hand" {
		t.Errorf("%v", r)
	}

	first, _ := peer(t, "python3", "python", "waits.py", x.d.URL, "flows")
	if !strings.Contains(first, "answers waits of flows") {
		t.Fatal(first)
	}
	x.start("external_worker_task", "python", `{"document": "Guten Tag Welt und alle"}`)
	r := x.ends("python", "SUCCEEDED: submit SUCCEEDED translate SUCCEEDED store SUCCEEDED")
	if r.GetResult().GetStringValue() != "Guten Tag Welt und alle: good day world and alle" ||
		r.GetSteps()[1].GetResult().GetStructValue().AsMap()["words"] != 5.0 {
		t.Errorf("%v", r)
	}
	x.start("external_worker_task", "long", `{"document": "`+strings.Repeat("welt ", 10_000)+`"}`)
	x.until("long", "progress", func(r *progressorv1.Run) bool {
		return strings.HasSuffix(r.GetProgress().GetSummary(), " of 10000 words")
	})
	x.cancel("long")
	x.ends("long", "CANCELLED: submit SUCCEEDED translate CANCELLED store CANCELLED")
}

// scheduled_report is started by the cron of examples/flows, with a payload that is computed from
// the fire.
func TestExampleReport(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	sent := map[string]float64{}
	x := startExample(t, "scheduled_report", func(w *client.Worker) {
		client.Handle(w, "collect", func(_ context.Context, p map[string]string) ([]string, error) {
			return []string{p["from"], p["to"]}, nil
		})
		client.Handle(w, "render", func(_ context.Context, p struct {
			Title string   `json:"title"`
			Rows  []string `json:"rows"`
		}) (string, error) {
			return fmt.Sprintf("%s, %d rows", p.Title, len(p.Rows)), nil
		})
		client.Handle(w, "send", func(_ context.Context, p struct {
			To       string          `json:"to"`
			Document string          `json:"document"`
			Number   json.RawMessage `json:"number"`
		}) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			sent[p.To+": "+p.Document]++
			return nil, nil
		})
	})
	clitest.WantLines(t, x.d.Client.OK(t, "cron", "create", "flows", "daily_report", "-f",
		exampleFlows+"scheduled_report_cron.yaml"),
		"expressions 0 6 * * *", "fires at 06:00 every day, Europe/Berlin")
	x.d.Client.OK(t, "cron", "trigger", "flows", "daily_report")
	crons := client.New(x.d.URL).Cron
	var f *progressorv1.Fire
	clitest.Eventually(t, "the report is created", func() error {
		resp, err := crons.ListFires(t.Context(),
			&progressorv1.ListFiresRequest{Namespace: "flows", CronId: "daily_report"})
		if err != nil || len(resp.GetFires()) != 1 {
			t.Fatalf("%v, %v", resp, err)
		}
		if f = resp.GetFires()[0]; f.GetStatus() != progressorv1.FireStatus_FIRE_STATUS_SUCCESS {
			return errors.New(f.String())
		}
		return nil
	})
	at := func(at time.Time) string { // the format of times in expressions: with 0, 3, 6 or 9 digits
		text, err := protojson.Marshal(timestamppb.New(at))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Trim(string(text), `"`)
	}
	from, to := at(f.GetFireTime().AsTime().Add(-24*time.Hour)), at(f.GetFireTime().AsTime())
	r := x.ends(strings.TrimPrefix(f.GetProcessId(), "~flow/"),
		"SUCCEEDED: collect SUCCEEDED render SUCCEEDED send SUCCEEDED")
	document := "Report of " + from + " to " + to + ", 2 rows"
	if r.GetCronId() != "daily_report" || r.GetResult().GetStringValue() != document ||
		r.GetScopeId() != "daily_report" {
		t.Errorf("%v", r)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(sent) != 1 || sent["reports@example.com: "+document] != 1 {
		t.Errorf("sent: %v", sent)
	}
}

// multi_step_pipeline asks a person about an expensive order, ships each parcel separately, and
// compensates its steps if a parcel cannot be shipped.
func TestExamplePipeline(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var log []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, fmt.Sprintf(format, args...))
	}
	x := startExample(t, "multi_step_pipeline", func(w *client.Worker) {
		client.Handle(w, "check", func(context.Context, any) (string, error) { return "fine", nil })
		client.Handle(w, "reserve", func(_ context.Context, p struct {
			Order   string `json:"order"`
			Parcels []any  `json:"parcels"`
		}) (string, error) {
			return "reservation of " + p.Order, nil
		})
		client.Handle(w, "charge", func(_ context.Context, p struct {
			Order       string  `json:"order"`
			Amount      float64 `json:"amount"`
			Reservation string  `json:"reservation"`
			Approved    bool    `json:"approved"`
		}) (string, error) {
			note("charge %s %v, %s, approved %t", p.Order, p.Amount, p.Reservation, p.Approved)
			return "receipt of " + p.Order, nil
		})
		client.Handle(w, "ship", func(_ context.Context, p struct {
			Order  string         `json:"order"`
			Parcel map[string]any `json:"parcel"`
			Label  string         `json:"label"`
		}) (string, error) {
			if p.Parcel["sku"] == "lost" {
				return "", processor.Reject("no_stock", "%s is out of stock", p.Label)
			}
			return p.Label, nil
		})
		client.Handle(w, "notify", func(_ context.Context, p struct {
			Order   string `json:"order"`
			Shipped bool   `json:"shipped"`
			Parcels any    `json:"parcels"`
		}) (any, error) {
			note("notify %s, shipped %t", p.Order, p.Shipped)
			return nil, nil
		})
		for _, undo := range []string{"refund", "release"} {
			client.Handle(w, undo, func(_ context.Context, p struct {
				Input  map[string]any `json:"input"`
				Result string         `json:"result"`
			}) (any, error) {
				note("%s %v, %s", undo, p.Input["order"], p.Result)
				return nil, nil
			})
		}
	})
	logged := func(want ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(log, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
		log = nil
	}
	x.start("multi_step_pipeline", "expensive",
		`{"order": "A-7", "total": 1200, "parcels": [{"sku": "tea", "count": 1}, {"sku": "pot", "count": 2}, `+
			`{"sku": "cup", "count": 4}]}`)
	w := x.wait("expensive")
	if w.GetTitle() != "Approve order A-7 of 1200" || strings.Join(w.GetAssignees(), " ") != "sales" {
		t.Errorf("the wait: %v", w)
	}
	approved, err := structpb.NewValue(map[string]any{"approved": true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = x.flow.CompleteStep(t.Context(), &progressorv1.CompleteStepRequest{
		Namespace: "flows", RunId: "expensive", StepId: "approve", WorkerId: "kim",
		Outcome: &progressorv1.CompleteStepRequest_Result{Result: approved},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := x.ends("expensive", "SUCCEEDED: check SUCCEEDED reserve SUCCEEDED approve SUCCEEDED charge SUCCEEDED ship "+
		"SUCCEEDED notify SUCCEEDED")
	if got := fmt.Sprint(r.GetResult().GetStructValue().AsMap()); got != "map[order:A-7 parcels:[A-7-0 A-7-1 A-7-2]]" {
		t.Errorf("the result: %s", got)
	}
	logged("charge A-7 1200, reservation of A-7, approved true", "notify A-7, shipped true")

	x.start("multi_step_pipeline", "lost",
		`{"order": "A-8", "total": 30, "parcels": [{"sku": "tea", "count": 1}, {"sku": "lost", "count": 1}]}`)
	r = x.ends("lost", "FAILED: check SUCCEEDED reserve SUCCEEDED undo SUCCEEDED approve SKIPPED charge SUCCEEDED "+
		"undo SUCCEEDED ship FAILED notify SUCCEEDED")
	if r.GetFailure().GetReason() != "items_failed" {
		t.Errorf("%v", r.GetFailure())
	}
	logged("charge A-8 30, reservation of A-8, approved false", "notify A-8, shipped false",
		"refund A-8, receipt of A-8", "release A-8, reservation of A-8")
}
