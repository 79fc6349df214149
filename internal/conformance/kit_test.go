package conformance

import (
	"context"
	"errors"
	"flag"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

var update = flag.Bool("update", false, "write the expected runs to testdata/expected.txt")

// The runs must match testdata/expected.txt, so that every change of the journal or the tasks shows
// up in the diff of that file.
func TestExpected(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, s := range scenarios() {
		e, err := s.run(t.Context(), &execution{function: Functions()[s.function], timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("# " + s.name + "\n" + strings.Join(append(e.trace, e.outcome...), "\n") + "\n\n")
	}
	const file = "testdata/expected.txt"
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d, differs := compare(strings.Split(string(want), "\n"), strings.Split(text.String(), "\n")); differs {
		t.Errorf("%s\nexpected %s\ngot      %s\nTo accept it: go test ./internal/conformance -update",
			d.Where, d.Expected, d.Got)
	}
}

// The functions of this package pass the kit over HTTP, as the functions of an SDK must.
func TestGoPasses(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(Handler(Functions()))
	t.Cleanup(server.Close)
	runs := 0
	err := Run(t.Context(), time.Minute, func(name string) processor.Processor { return dial(t, server.URL+"/"+name) },
		func(r Result) {
			runs += r.Runs
			for _, d := range r.Differences {
				t.Errorf("%s: %+v", r.Scenario, d)
			}
		})
	if err != nil || runs < 100 {
		t.Errorf("%d runs: %v", runs, err)
	}
}

func dial(t *testing.T, url string) processor.Processor {
	t.Helper()
	p, err := remote.Dial("conformance", &progressorv1.ConnectProcessor{
		Url: url, Encoding: progressorv1.ConnectProcessor_ENCODING_JSON,
	}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The kit detects what a broken SDK does.
func TestDifferences(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		broken func(*progressorv1.ProcessRequest, *progressorv1.Result)
		want   string
	}{
		"a lost entry": {func(_ *progressorv1.ProcessRequest, r *progressorv1.Result) {
			if len(r.GetEvents()) > 1 {
				r.Events = r.Events[:1]
			}
		}, `"k":"timer"`},
		"a lost timer": {func(_ *progressorv1.ProcessRequest, r *progressorv1.Result) {
			r.NamedTimers = nil
		}, "timer "},
		"an effect of a kill": {func(req *progressorv1.ProcessRequest, r *progressorv1.Result) {
			if req.GetAttempt() > 1 {
				r.AuxState = []byte(`"again"`)
			}
		}, `"again"`},
		"an early step": {func(req *progressorv1.ProcessRequest, r *progressorv1.Result) {
			if req.GetType() == progressorv1.TaskType_TASK_TYPE_INIT && len(r.GetEvents()) > 0 {
				r.Events = append(r.Events, &progressorv1.NewEvent{Payload: []byte(`{"k":"step","n":"reserve","v":1}`)})
			}
		}, `"n":"reserve"`},
	} {
		var found []Difference
		functions := Functions()
		err := Run(t.Context(), time.Minute, func(name string) processor.Processor {
			return processor.Func(func(
				ctx context.Context, req *progressorv1.ProcessRequest,
			) (*progressorv1.ProcessResponse, error) {
				resp, err := functions[name].Process(ctx, req)
				if result := resp.GetResult(); result != nil {
					test.broken(req, result)
				}
				return resp, err
			})
		}, func(r Result) { found = append(found, r.Differences...) })
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 || !strings.Contains(found[0].Expected+found[0].Got, test.want) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// A function that does not answer ends the kit with an error.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	functions, tasks := Functions(), 0
	hung := processor.Func(func(
		ctx context.Context, req *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		if tasks++; tasks == 1 {
			return functions["order"].Process(ctx, req)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := Run(ctx, 500*time.Millisecond, func(string) processor.Processor { return hung }, nil)
	const want = `scenario "an order is paid", function order: no answer to task 2 (TIMEOUT, attempt 1) within 500ms`
	if err == nil || err.Error() != want || tasks != 2 {
		t.Errorf("%v after %d tasks, want %s", err, tasks, want)
	}
	cancel()
	err = Run(ctx, time.Minute, func(string) processor.Processor { return hung }, nil)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
