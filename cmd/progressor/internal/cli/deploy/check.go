package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable/durablecheck"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A process with a running task is read again: what it waits for is known only after the task ends.
const (
	maxReads  = 10
	readPause = 100 * time.Millisecond
)

// openProcesses is added to a filter that does not compare the status.
const openProcesses = "status = RUNNING OR status = SUSPENDED"

var (
	quoted     = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'`)
	statusName = regexp.MustCompile(`(^|[^.\w])status\b`)
)

// asksStatus reports whether a filter compares the status of processes. A field of the metadata
// with the name status does not count.
func asksStatus(filter string) bool {
	return statusName.MatchString(quoted.ReplaceAllString(filter, `""`))
}

var (
	// errHidden is the error for a user who may not read payloads.
	errHidden  = errors.New("the journal of the processes is hidden: your roles must have payload.read")
	errEncoded = errors.New("the first event of the process is not JSON")
)

// unsureError is the error for a process that perhaps does not run a durable function. It is the
// result of the command only if no process could be checked.
type unsureError struct{ error }

func (e *unsureError) Unwrap() error { return e.error }

// uncheckedError is the error for a process that cannot be checked. The other processes are still
// checked.
type uncheckedError struct{ reason string }

func (e *uncheckedError) Error() string { return e.reason }

// checkAll checks all open processes that match.
func (c *checkCmd) checkAll(ctx context.Context, a *cli.App, build processor.Processor) (*result, error) {
	k := &checks{checkCmd: c, build: build, engine: c.Client(), result: newResult(c.NS, c.Ignore),
		bar: output.NewTerminalLine(a.Stderr, a.Terminal && !c.JSON()), onlyOpen: !asksStatus(c.Match)}
	filter := c.Match
	if k.onlyOpen {
		filter = cli.Both(openProcesses, filter)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.Concurrency)
	req := &progressorv1.ListProcessesRequest{Namespace: c.NS, Filter: filter, OrderBy: "process_id", PageSize: 1000,
		UsersOnly: true}
	for ctx.Err() == nil {
		page, err := k.list(ctx, req)
		if err != nil {
			if cause := group.Wait(); cause != nil {
				err = cause
			}
			return nil, err
		}
		for _, p := range page.GetProcesses() {
			group.Go(func() error { return k.check(ctx, p) })
		}
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	err := group.Wait()
	k.bar.End()
	if err == nil && k.result.Checked == 0 {
		err = k.unsure
	}
	return k.result, err
}

// checks is a running check.
type checks struct {
	*checkCmd
	build    processor.Processor
	engine   *client.Client
	onlyOpen bool // processes with a status that openProcesses excludes are not checked

	mu     sync.Mutex
	result *result
	unsure error // the last error about a process that was skipped
	bar    output.TerminalLine
}

func (k *checks) list(
	ctx context.Context, req *progressorv1.ListProcessesRequest,
) (*progressorv1.ListProcessesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, cli.ReadTimeout)
	defer cancel()
	return k.engine.Process.ListProcesses(ctx, req)
}

// check checks one process.
func (k *checks) check(ctx context.Context, listed *progressorv1.Process) error {
	p, report, err := k.askInTime(ctx, listed.GetProcessId())
	unchecked, isUnchecked := errors.AsType[*uncheckedError](err)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case client.Detail(err).GetReason() == progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND:
		return nil // it was removed in the meantime
	case p != nil && (err == nil || isUnchecked) && k.onlyOpen &&
		p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING &&
		p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_SUSPENDED:
		return nil // it has ended in the meantime
	case isUnchecked:
		k.result.NotChecked = append(k.result.NotChecked, uncheckedRun{
			ProcessID: listed.GetProcessId(), Status: output.Enum(listed.GetStatus()), Reason: unchecked.reason,
		})
	case isUnsure(err):
		k.unsure = err
		k.result.Skipped++
	case err != nil:
		return err
	case report == nil:
		k.result.Skipped++
	default:
		k.result.add(p, *report)
	}
	if k.bar.Enabled() {
		k.bar.Write(k.result.progress())
	}
	return nil
}

// askInTime calls ask with the timeout --run-timeout.
func (k *checks) askInTime(ctx context.Context, id string) (*progressorv1.Process, *durablecheck.Report, error) {
	limited, cancel := context.WithTimeout(ctx, k.RunTimeout)
	defer cancel()
	p, report, err := k.ask(limited, id)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = &uncheckedError{fmt.Sprintf("it could not be read within %s (--run-timeout)", k.RunTimeout)}
	}
	return p, report, err
}

// ask returns the report of the build about a process. The report is nil if the process does not
// run a durable function.
func (k *checks) ask(ctx context.Context, id string) (*progressorv1.Process, *durablecheck.Report, error) {
	for reads := 1; ; reads++ {
		resp, err := k.engine.Process.GetProcess(ctx, &progressorv1.GetProcessRequest{Namespace: k.NS, ProcessId: id})
		if client.Detail(err).GetReason() == progressorv1.ErrorDetail_REASON_TOO_LARGE {
			return k.askLarge(ctx, id)
		}
		if err != nil {
			return nil, nil, err
		}
		p := resp.GetProcess()
		isFunction, unsure := isJournal(p)
		if !isFunction {
			return p, nil, unsure
		}
		report, err := k.run(ctx, p)
		if unsure != nil && errors.Is(err, durablecheck.ErrUnsupported) {
			err = &unsureError{err}
		}
		if err != nil || !report.Has(durablecheck.New) {
			return p, report, err
		}
		busy, same, err := k.isBusy(ctx, p)
		switch {
		case err != nil:
			return nil, nil, err
		case !busy && same:
			return p, report, nil
		case reads == maxReads: // the added timer tells the build that a task will run soon
			p.Timers = append(p.Timers, &progressorv1.Timer{FireTime: timestamppb.Now()})
			report, err = k.run(ctx, p)
			return p, report, err
		}
		select {
		case <-time.After(readPause):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// askLarge is like ask, but for a process whose history is too large for one response. It returns
// an uncheckedError if the process may run a durable function.
func (k *checks) askLarge(ctx context.Context, id string) (*progressorv1.Process, *durablecheck.Report, error) {
	resp, err := k.engine.Process.GetProcess(ctx, &progressorv1.GetProcessRequest{
		Namespace: k.NS, ProcessId: id, Range: &progressorv1.HistoryRange{Limit: new(int32(1))},
	})
	if err != nil {
		return nil, nil, err
	}
	if isFunction, unsure := isJournal(resp.GetProcess()); !isFunction {
		return resp.GetProcess(), nil, unsure
	}
	return resp.GetProcess(), nil, &uncheckedError{fmt.Sprintf(
		"its history is too large to read: it has %s events (limits: %s events and %d MiB)",
		output.Thousands(resp.GetProcess().GetLastEventId()-max(1, resp.GetProcess().GetFirstEventId())+1),
		output.Thousands(process.MaxHistoryEvents), process.MaxHistoryBytes>>20)}
}

// run asks the build for a report about p. If only the check of this process fails, the report
// contains the error.
func (k *checks) run(ctx context.Context, p *progressorv1.Process) (*durablecheck.Report, error) {
	report, err := durablecheck.Run(ctx, k.build, p)
	_, failed := errors.AsType[*durablecheck.FailedError](err)
	switch {
	case failed:
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("the program did not answer within %s", k.RunTimeout)
	default:
		return &report, err
	}
	return &durablecheck.Report{Findings: []durablecheck.Finding{{Class: durablecheck.Error, Detail: err.Error()}}}, nil
}

// quietSpans are the spans in which a process can stay while none of its tasks is running or about
// to run.
var quietSpans = []string{"idle", "time", "operator", "reply"}

// isBusy reports whether a task of the process runs or waits to run. same reports whether the
// process is unchanged since p was read.
func (k *checks) isBusy(ctx context.Context, p *progressorv1.Process) (busy, same bool, err error) {
	resp, err := k.engine.Insight.ExplainProcess(ctx, &progressorv1.ExplainProcessRequest{
		Namespace: p.GetNamespace(), ProcessId: p.GetProcessId(),
	})
	if err != nil {
		return false, false, err
	}
	for _, span := range resp.GetSpans() {
		busy = busy || span.GetToTime() == nil && !slices.Contains(quietSpans, span.GetWhat())
	}
	return busy, resp.GetProcess().GetLastEventId() == p.GetLastEventId(), nil
}

// isJournal reports whether the history of a process is the journal of a function. err is an
// unsureError if only the build can decide this.
func isJournal(p *progressorv1.Process) (ok bool, err error) {
	if len(p.GetHistory()) == 0 {
		return false, nil
	}
	first := p.GetHistory()[0].GetPayload()
	if len(first) == 0 {
		for _, e := range p.GetHistory() {
			if len(e.GetPayload()) > 0 {
				return false, nil
			}
		}
		return false, &unsureError{errHidden}
	}
	if !json.Valid(first) { // the build may have a codec that decodes it
		return true, &unsureError{errEncoded}
	}
	return explain.IsFunction(first), nil
}

func isUnsure(err error) bool {
	_, ok := errors.AsType[*unsureError](err)
	return ok
}
