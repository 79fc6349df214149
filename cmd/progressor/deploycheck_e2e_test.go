package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/codec"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// shipBuild is a build of the function of TestDeployCheck. Its zero value is the old build. The
// fields say how another build differs from it.
type shipBuild struct {
	inserted, moved, removed, renamed, changed, retyped bool

	open *atomic.Bool // whether the step ship succeeds
}

// charged and recharged are the types of the value of the step charge in two builds.
type (
	charged   struct{ Amount int }
	recharged struct{ Amount string }
)

func (b shipBuild) function() *durable.Function[struct{}, string] {
	return durable.Func("ship", func(ctx durable.Ctx, _ struct{}) (string, error) { return "", b.run(ctx) })
}

func (b shipBuild) step(ctx durable.Ctx, name string) error {
	return durable.Run(ctx, name, func(context.Context) error { return nil })
}

func (b shipBuild) run(ctx durable.Ctx) error {
	begins, pays := durable.Calls[int, int](ctx, "begin"), durable.Calls[int, int](ctx, "pay")
	goes := durable.Calls[int, int](ctx, "go")
	begins.Next()
	reserve := "reserve"
	if b.renamed {
		reserve = "hold"
	}
	if !b.moved {
		if err := b.step(ctx, reserve); err != nil {
			return err
		}
	}
	pays.Next()
	if b.moved {
		if err := b.step(ctx, reserve); err != nil {
			return err
		}
	}
	if err := b.charge(ctx); err != nil {
		return err
	}
	if b.inserted {
		if err := b.step(ctx, "inspect"); err != nil {
			return err
		}
	}
	pause := time.Hour
	if b.changed {
		pause *= 2
	}
	durable.First(ctx, "pause-or-go", durable.After(ctx, "pause", pause), goes)
	return durable.Run(ctx, "ship", func(context.Context) error {
		if !b.open.Load() {
			return errors.New("closed")
		}
		return nil
	}, durable.Retry(20, time.Second))
}

func (b shipBuild) charge(ctx durable.Ctx) error {
	switch {
	case b.removed:
		return nil
	case b.retyped:
		_, err := durable.Step(ctx, "charge", func(context.Context) (recharged, error) { return recharged{"7"}, nil })
		return err
	default:
		_, err := durable.Step(ctx, "charge", func(context.Context) (charged, error) { return charged{7}, nil })
		return err
	}
}

// places lists the places in the function at which the runs of TestDeployCheck wait: the last entry
// of their journal, and the calls that bring them there.
var places = []struct {
	name, last string
	calls      []string
}{
	{"new", "start ship", nil},
	{"call", "step reserve", []string{"begin"}},
	{"timer", "timer pause", []string{"begin", "pay"}},
	{"step", "try ship", []string{"begin", "pay", "go"}},
}

// swapped starts a server. swap replaces its processor.
func swapped(t *testing.T) (url string, swap func(processor.Processor)) {
	t.Helper()
	var current atomic.Pointer[http.Handler]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*current.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, func(p processor.Processor) {
		handler := processor.Handler(p)
		current.Store(&handler)
	}
}

// TestDeployCheck opens manyRuns runs. It checks most builds with the first fewRuns of them.
const manyRuns, fewRuns = 1000, 40

func shopProcess(id string) *progressorv1.GetProcessRequest {
	return &progressorv1.GetProcessRequest{Namespace: "shop", ProcessId: id}
}

// inParallel calls f for all runs, a quarter of them for each place.
func inParallel(t *testing.T, f func(place int, id string) error) {
	t.Helper()
	group := new(errgroup.Group)
	group.SetLimit(32)
	for i := range manyRuns {
		place, set := i%len(places), "many"
		if i < fewRuns {
			set = "few"
		}
		group.Go(func() error { return f(place, fmt.Sprintf("%s-%s-%d", set, places[place].name, i)) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// shopRuns are the runs of TestDeployCheck.
type shopRuns struct{ *client.Client }

func (c shopRuns) call(t *testing.T, id string, names ...string) error {
	t.Helper()
	for _, name := range names {
		if _, err := c.Call(t.Context(), &progressorv1.CallRequest{Namespace: "shop", ProcessId: id,
			Args: []byte(`{"` + name + `":1}`)}); err != nil {
			return fmt.Errorf("call %s of %s: %w", name, id, err)
		}
	}
	return nil
}

// open starts the runs and waits until they are at their places.
func (c shopRuns) open(t *testing.T) {
	t.Helper()
	inParallel(t, func(place int, id string) error {
		_, err := c.Start(t.Context(), &progressorv1.StartRequest{Namespace: "shop", ProcessId: id, Args: []byte(`{}`)})
		if err != nil {
			return err
		}
		return c.call(t, id, places[place].calls...)
	})
	inParallel(t, func(place int, id string) error {
		clitest.Eventually(t, id+" waits", func() error {
			resp, err := c.Process.GetProcess(t.Context(), shopProcess(id))
			if err != nil {
				return err
			}
			if kinds := kindsOf(t, resp.GetProcess()); !slices.Contains(kinds, places[place].last) {
				return fmt.Errorf("%v", kinds)
			}
			return nil
		})
		return nil
	})
}

// finish makes the remaining calls to the runs at the places that isAt selects, and waits until
// they are COMPLETED.
func (c shopRuns) finish(t *testing.T, isAt func(place string) bool) {
	t.Helper()
	inParallel(t, func(place int, id string) error {
		if !isAt(places[place].name) {
			return nil
		}
		if err := c.call(t, id, []string{"begin", "pay", "go"}[len(places[place].calls):]...); err != nil {
			return err
		}
		clitest.Eventually(t, id+" completes", func() error {
			resp, err := c.Process.GetProcess(t.Context(), shopProcess(id))
			if err != nil {
				return err
			}
			if p := resp.GetProcess(); p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED {
				return errors.New(p.GetStatus().String() + " " + p.GetDetail())
			}
			return nil
		})
		return nil
	})
}

// A check reports exactly the open runs that a new build affects. All other runs finish with the
// new build.
func TestDeployCheck(t *testing.T) {
	t.Parallel()
	var open atomic.Bool
	url, swap := swapped(t)
	swap(shipBuild{open: &open}.function())
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "shop", "--connect-url", url)
	runs := shopRuns{client.New(d.URL)}
	runs.open(t)
	newURL, swapNew := swapped(t)
	check := func(b shipBuild, runs int, filter string) affected {
		b.open = &open
		swapNew(b.function())
		return deployCheck(t, d.Client, runs, filter, "--url", newURL)
	}
	const inserted, removed = "new step inspect", "orphan step charge"
	const changed, renamed = "changed timer pause", "orphan step reserve, new step hold"
	for name, c := range map[string]struct {
		build shipBuild
		want  affected
	}{
		"nothing changes":        {shipBuild{}, affected{}},
		"a step is inserted":     {shipBuild{inserted: true}, affected{"timer": inserted, "step": inserted}},
		"a step is moved":        {shipBuild{moved: true}, affected{}},
		"a step is removed":      {shipBuild{removed: true}, affected{"timer": removed, "step": removed}},
		"a timer is changed":     {shipBuild{changed: true}, affected{"timer": changed, "step": changed}},
		"a value has a new type": {shipBuild{retyped: true}, affected{"timer": "error  ", "step": "error  "}},
		"a step is renamed": {shipBuild{renamed: true},
			affected{"call": renamed, "timer": renamed, "step": renamed}},
	} {
		if got := check(c.build, fewRuns, `process_id = "few-*"`); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v\nwant %v", name, got, c.want)
		}
	}

	deployed := shipBuild{inserted: true, moved: true, changed: true, retyped: true, open: &open}
	report := check(deployed, manyRuns, "")
	open.Store(true)
	swap(deployed.function())
	runs.finish(t, func(place string) bool { return report[place] == "" })
	if want := (affected{"timer": "error  ", "step": "error  "}); fmt.Sprint(report) != fmt.Sprint(want) {
		t.Errorf("the deployed build affects %v, want %v", report, want)
	}
}

// affected contains the findings about the runs that wait at a place, by place.
type affected map[string]string

// deployCheck runs deploy check and returns its findings. It fails the test unless all runs that
// wait at the same place have the same findings, and the counts in the report are consistent.
func deployCheck(t *testing.T, program clitest.Program, runs int, filter string, flags ...string) affected {
	t.Helper()
	r := program.Run(t, append([]string{"deploy", "check", "shop", filter, "-o", "json"}, flags...)...)
	var report struct {
		Checked, Same, Affected, Failing int
		Runs                             []struct {
			ProcessID string `json:"process_id"`
			Findings  []struct{ Class, Kind, Name string }
		}
	}
	if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	found, counts := affected{}, map[string]int{}
	for _, run := range report.Runs {
		place := strings.Split(run.ProcessID, "-")[1]
		var texts []string
		for _, f := range run.Findings {
			texts = append(texts, f.Class+" "+f.Kind+" "+f.Name)
		}
		text := strings.Join(texts, ", ")
		if counts[place]++; found[place] != "" && found[place] != text {
			t.Errorf("%s: %s, but others %s", run.ProcessID, text, found[place])
		}
		found[place] = text
	}
	for place, n := range counts {
		if n != runs/len(places) {
			t.Errorf("%d runs that wait at %s", n, place)
		}
	}
	stops := strings.Contains(fmt.Sprint(found), "error") || strings.Contains(fmt.Sprint(found), "orphan")
	if report.Checked != runs || report.Same+report.Affected != runs || report.Failing > 0 != stops ||
		stops != (r.Code == cli.ExitFailed) {
		t.Errorf("code %d: %s", r.Code, r.Stderr)
	}
	return found
}

// newBuildVariable makes the test binary behave like a program with a new build: see serveNewBuild.
const newBuildVariable = "TEST_NEW_BUILD"

// buildCodec encrypts the payloads of TestDeployCheckOfPrograms.
func buildCodec() codec.Codec {
	c, err := codec.NewAESGCM("k1", map[string][]byte{"k1": make([]byte, codec.KeyBytes)})
	if err != nil {
		panic(err)
	}
	return c
}

// serveNewBuild runs a build of the function until the program is ended. A worker is configured for
// an engine that does not exist.
func serveNewBuild(kind string) {
	var open atomic.Bool
	build := shipBuild{renamed: true, open: &open}.function()
	var err error
	switch kind {
	case "worker":
		w := client.NewWorker(client.New("http://127.0.0.1:1", client.WithCodec(buildCodec())), []string{"shop"})
		w.HandleProcesses(build)
		err = w.Run(context.Background())
	case "processor":
		deny := func(http.Handler) http.Handler { return http.NotFoundHandler() }
		err = processor.Serve(context.Background(), "127.0.0.1:1", build, processor.WithMiddleware(deny),
			processor.WithCodec(buildCodec()))
	case "other": // not a durable function
		err = processor.Serve(context.Background(), "127.0.0.1:1", &processor.Router{})
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(3)
}

// With --cmd, deploy check starts the program of the new build, whose worker or processor then
// answers only checks. The program itself decrypts the payloads, so deploy check does not need the
// key.
func TestDeployCheckOfPrograms(t *testing.T) {
	t.Parallel()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "shop", "--pull")
	c := client.New(d.URL, client.WithCodec(buildCodec()))
	var open atomic.Bool
	w := client.NewWorker(c, []string{"shop"})
	w.HandleProcesses(shipBuild{open: &open}.function())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for _, id := range []string{"new", "old"} {
		if _, err := c.Start(t.Context(), &progressorv1.StartRequest{Namespace: "shop", ProcessId: id,
			Args: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := (shopRuns{c}).call(t, "old", "begin"); err != nil {
		t.Fatal(err)
	}
	clitest.Eventually(t, "the step ends", func() error {
		resp, err := c.Process.GetProcess(t.Context(), shopProcess("old"))
		if err == nil && !slices.Contains(kindsOf(t, resp.GetProcess()), "step reserve") {
			err = errors.New("the step has not ended")
		}
		return err
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"worker", "processor"} {
		r := d.Client.Run(t, "deploy", "check", "shop", "--cmd", newBuildVariable+"="+kind+" exec "+self)
		if r.Code != cli.ExitFailed {
			t.Errorf("%s: %+v", kind, r)
		}
		clitest.WantLines(t, r.Stdout,
			"1  orphan  step reserve: has completed, perhaps renamed to hold",
			"1  new  step hold: the next task runs it  progressor/deploycheck_e2e_test.go:",
			"old  RUNNING  orphan step reserve, new step hold",
			"2 open processes checked: 1 same, 1 affected (orphan 1, new 1)")
		if !strings.Contains(r.Stderr, "affects 1 open process with findings of the class error or orphan") {
			t.Errorf("%s: %s", kind, r.Stderr)
		}
		r = d.Client.Run(t, "deploy", "check", "shop", "--cmd", newBuildVariable+"="+kind+" exec "+self,
			"--ignore", "reserve", "--fail-on", "error,orphan,changed")
		if r.Code != cli.ExitOK {
			t.Errorf("%s, ignored: %+v", kind, r)
		}
	}
	for command, want := range map[string]string{
		newBuildVariable + "=other exec " + self: "the program does not answer checks",
		"exit 3":                                 "the command ended before it listened on 127.0.0.1:",
	} {
		r := d.Client.Run(t, "deploy", "check", "shop", "--cmd", command, "--fail-on", "none")
		if r.Code != cli.ExitFailed || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: %+v", command, r)
		}
	}
	if r := d.Client.Run(t, "deploy", "check", "shop"); r.Code != cli.ExitUsage {
		t.Errorf("without a build: %+v", r)
	}
}
