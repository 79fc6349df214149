package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A process that waits for a timer while a caller waits for its reply is not busy: a check reports
// what its next task would do. A metadata field named status does not make the check include ended
// processes.
func TestDeployCheckOfRequests(t *testing.T) {
	t.Parallel()
	desk := func(inserted bool) processor.Processor {
		return durable.Func("desk", func(ctx durable.Ctx, _ struct{}) (string, error) {
			durable.SetMetadata(ctx, map[string]any{"status": "here"})
			request := durable.Requests[int, int](ctx, "ask").Next()
			think := durable.After(ctx, "think", time.Hour)
			if inserted { // a busy process may run this step later, because the step follows all entries of the journal
				_ = durable.Run(ctx, "inspect", func(context.Context) error { return nil })
			}
			think.Wait()
			request.Reply(1)
			return "", nil
		})
	}
	url, swap := swapped(t)
	swap(desk(false))
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "shop", "--connect-url", url)
	for _, id := range []string{"open", "ended"} {
		d.Client.OK(t, "start", "shop", id, "--args", "{}")
		d.Client.Run(t, "call", "shop", id, "--args", `{"ask":1}`, "--timeout", "1ms")
	}
	d.Client.OK(t, "cancel", "shop", "ended")
	clitest.Eventually(t, "the process waits", func() error {
		resp, err := client.New(d.URL).Process.GetProcess(t.Context(), shopProcess("open"))
		if err == nil && !slices.Contains(kindsOf(t, resp.GetProcess()), "timer think") {
			err = errors.New("it has not begun to wait")
		}
		return err
	})
	clitest.Eventually(t, "the other process has ended", func() error {
		resp, err := client.New(d.URL).Process.GetProcess(t.Context(), shopProcess("ended"))
		if status := resp.GetProcess().GetStatus(); status != progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED {
			err = errors.Join(err, fmt.Errorf("it is %s", status))
		}
		return err
	})
	swap(desk(true))
	r := d.Client.Run(t, "deploy", "check", "shop", `metadata.status = "here"`, "--url", url, "--fail-on", "new")
	if r.Code != cli.ExitFailed {
		t.Errorf("%+v", r)
	}
	clitest.WantLines(t, r.Stdout, "1  new  step inspect: the next task runs it  progressor/deploycheck_open_test.go:",
		"open  RUNNING  new step inspect", "1 open process checked: 0 same, 1 affected (new 1)")
}

// A process that ends after it is listed and before its journal is read is not checked.
func TestDeployCheckOfAProcessThatEnds(t *testing.T) {
	t.Parallel()
	url, swap := swapped(t)
	swap(durable.Func("f", func(ctx durable.Ctx, _ struct{}) (string, error) {
		return "", durable.Run(ctx, "a", func(context.Context) error { return nil })
	}))
	listed := &progressorv1.Process{
		Namespace: "shop", ProcessId: "p", Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
	}
	p := clitest.Serve(t, newCommands, &clitest.Engine{
		Namespace: &progressorv1.Namespace{Namespace: "shop"},
		Pages:     []*progressorv1.ListProcessesResponse{{Processes: []*progressorv1.Process{listed}}},
		Process: &progressorv1.Process{
			Namespace: "shop", ProcessId: "p", Status: progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED,
			LastEventId: 1,
			History:     []*progressorv1.Event{{EventId: 1, TaskId: 1, Payload: []byte(`{"k":"start","n":"f"}`)}},
		},
		Insight: &progressorv1.ExplainProcessResponse{},
	})
	clitest.WantLines(t, p.OK(t, "deploy", "check", "shop", "--url", url), "0 open processes checked")
}

// Processes that are not durable functions are skipped. If all are skipped, the check fails.
func TestDeployCheckOfOtherProcesses(t *testing.T) {
	t.Parallel()
	f := durable.Func("f", func(ctx durable.Ctx, _ struct{}) (string, error) {
		return "", nil
	})
	url, swap := swapped(t)
	swap(processor.Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		if strings.HasPrefix(r.GetProcess().GetProcessId(), "f-") {
			return f.Process(ctx, r)
		}
		return (&processor.Router{}).Process(ctx, r)
	}))
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "shop", "--connect-url", url)
	put := func(id string, payloads ...string) {
		r := &progressorv1.PutProcessRequest{Namespace: "shop", ProcessId: id,
			Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING}
		for i, payload := range payloads {
			r.History = append(r.History, &progressorv1.Event{EventId: int64(i + 1), Payload: []byte(payload)})
		}
		if _, err := client.New(d.URL).Process.PutProcess(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	put("binary", "\x08\x01")
	put("bare", "", "{}")
	put("json", `{"type":"paid"}`)
	if r := d.Client.Run(t, "deploy", "check", "shop", "--url", url); r.Code != cli.ExitFailed ||
		!strings.Contains(r.Stderr, "the program does not answer checks") {
		t.Errorf("without functions: %+v", r)
	}
	put("empty", "")
	put("f-1", `{"k":"start","n":"f","v":{}}`)
	clitest.WantLines(t, d.Client.OK(t, "deploy", "check", "shop", "--url", url),
		"1 open process checked: ", "4 skipped (not durable functions)")
}

// A process whose history is too large is not checked. The others are checked, and the exit code
// reports that one was not.
func TestDeployCheckOfALargeHistory(t *testing.T) {
	t.Parallel()
	url, swap := swapped(t)
	swap(durable.Func("f", func(ctx durable.Ctx, _ struct{}) (string, error) {
		calls := durable.Calls[int, int](ctx, "x")
		_ = durable.Run(ctx, "x", func(context.Context) error { return nil })
		for {
			calls.Next()
		}
	}))
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "shop", "--connect-url", url)
	put := func(id string, events int, first, others string) {
		r := &progressorv1.PutProcessRequest{Namespace: "shop", ProcessId: id,
			Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING}
		for i := range events {
			r.History = append(r.History, &progressorv1.Event{EventId: int64(i + 1), Payload: []byte(others)})
		}
		r.History[0].Payload = []byte(first)
		if _, err := client.New(d.URL).Process.PutProcess(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	const start, call = `{"k":"start","n":"f","v":{}}`, `{"k":"call","n":"x","v":1}`
	put("f-large", process.MaxHistoryEvents+1, start, call)
	put("f-small", 2, start, call)
	put("other", process.MaxHistoryEvents+1, "{}", "{}")
	check := func(code int, texts []string, flags ...string) {
		t.Helper()
		r := d.Client.Run(t, append([]string{"deploy", "check", "shop", "--url", url}, flags...)...)
		if r.Code != code {
			t.Errorf("%v: %+v", flags, r)
		}
		clitest.WantLines(t, r.Stdout+r.Stderr, texts...)
	}
	const reason = "its history is too large to read: it has 10,001 events (limits: 10,000 events and 8 MiB)"
	check(cli.ExitTaskFailed, []string{
		"f-small  RUNNING  new step x", "f-large  RUNNING  " + reason,
		"1 open process checked: 0 same, 1 affected (new 1); 1 skipped (not a durable function); 1 not checked",
		"progressor: 1 open process could not be checked",
	})
	check(cli.ExitFailed, []string{"with findings of the class new, and 1 open process could not be checked"},
		"--fail-on", "new")
	check(cli.ExitTaskFailed, []string{`"process_id": "f-large"`, `"reason": "` + reason + `"`, `"same": 1,`},
		"-o", "json", "--ignore", "step:x", "--fail-on", "new")
	check(cli.ExitTaskFailed, []string{"0 open processes checked: ", "; 2 not checked", "within 1ns (--run-timeout)"},
		"process_id = \"f-*\"", "--run-timeout", "1ns")
	check(cli.ExitOK, []string{"1 open process checked: "}, `process_id = "f-small"`, "--ignore", "timer:x")
}
