package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// readTimeout limits requests that do not wait for a task.
const readTimeout = 30 * time.Second

// engineAddress is the URL of an engine. The scheme is optional.
type engineAddress string

func (e engineAddress) url() string {
	if strings.Contains(string(e), "://") {
		return string(e)
	}
	return "http://" + string(e)
}

// Validate returns an error if the address cannot be that of an engine.
func (e engineAddress) Validate() error {
	u, err := url.Parse(e.url())
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("must be a URL, such as http://127.0.0.1:8080 or https://engine.example.com (got %s)", string(e))
	}
	return nil
}

// clientFlags are the flags of all commands that call an engine.
type clientFlags struct {
	Address engineAddress `default:"http://127.0.0.1:8080" placeholder:"URL" setting:"" help:"URL of an engine. Default: ${default}."`
	outputFlag
}

// client returns a client that gives up within a second, because a person waits for it.
func (f clientFlags) client() *client.Client {
	return f.clientWith(client.Retry{MaxAttempts: 4, Initial: 100 * time.Millisecond, Max: 400 * time.Millisecond})
}

// retryingClient returns a client for long waits. It survives a restart of the engine.
func (f clientFlags) retryingClient() *client.Client { return f.clientWith(client.DefaultRetry()) }

func (f clientFlags) clientWith(r client.Retry) *client.Client {
	return client.New(f.Address.url(), client.WithRetry(r), client.WithConnectOptions(connect.WithInterceptors(connect.UnaryInterceptorFunc(followTries))))
}

// request returns the context of a request that does not wait for a task.
func (a *app) request() (context.Context, context.CancelFunc) {
	ctx, cancelSignal := a.interruptible()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	return ctx, func() { cancel(); cancelSignal() }
}

// ask sends a request that does not wait for a task, and prints the response as JSON or with show.
func ask[Q, P proto.Message](a *app, output outputFlag, call func(context.Context, Q) (P, error), req Q, show func(P) error) error {
	ctx, cancel := a.request()
	defer cancel()
	resp, err := call(ctx, req)
	switch {
	case err != nil:
		return err
	case output.json():
		return printMessage(a.Stdout, resp)
	}
	return show(resp)
}

// processArgs identify a process.
type processArgs struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" name:"id" help:"Process id."`
}

// waitFlags are the flags of requests that run a task.
type waitFlags struct {
	IdempotencyKey string        `short:"k" placeholder:"KEY" help:"Idempotency key: the same request with the same key returns the first response. Default: a random key for all tries of this command."`
	Accepted       bool          `help:"Return when the task is stored, without waiting for its response."`
	Timeout        time.Duration `placeholder:"DURATION" help:"How long to wait for the response; the task continues after that. Default: the step timeout of the namespace."`
	Context        string        `placeholder:"TEXT|@FILE" help:"Context that the processor receives with this task and with the timers that it sets."`
}

func (f waitFlags) wait() progressorv1.Wait {
	if f.Accepted {
		return progressorv1.Wait_WAIT_ACCEPTED
	}
	return progressorv1.Wait_WAIT_COMPLETED
}

func (f waitFlags) timeout() *durationpb.Duration {
	if f.Timeout == 0 {
		return nil
	}
	return durationpb.New(f.Timeout)
}

func (f waitFlags) context(a *app) ([]byte, error) {
	if f.Context == "" {
		return nil, nil
	}
	return a.payload("--context", f.Context)
}

// rangeFlags select a part of the history.
type rangeFlags struct {
	Offset   *int64 `placeholder:"EVENT" help:"Only events after this event; with --backward, before it."`
	Limit    *int32 `placeholder:"N" help:"Maximum number of events; 0: none."`
	Backward bool   `help:"Newest event first."`
}

func (f rangeFlags) historyRange() *progressorv1.HistoryRange {
	if f.Offset == nil && f.Limit == nil && !f.Backward {
		return nil
	}
	r := &progressorv1.HistoryRange{Offset: f.Offset, Limit: f.Limit}
	if f.Backward {
		r.Direction = progressorv1.HistoryRange_DIRECTION_BACKWARD
	}
	return r
}

// pageFlags are the flags of paged lists. The command sets rows, the name of the listed items.
type pageFlags struct {
	PageSize  int32  `placeholder:"N" help:"Maximum number of ${rows} per page. Default: that of the engine."`
	PageToken string `placeholder:"TOKEN" help:"Token from the previous page."`
	All       bool   `help:"Print all pages."`
}

// page is a response with a page of a list.
type page interface {
	proto.Message
	GetNextPageToken() string
}

// printPages reads a page, or with --all that page and all following ones, and prints them as JSON
// or with show.
func printPages[P page](
	a *app, output outputFlag, flags pageFlags, read func(ctx context.Context, token string) (P, error), show func(all P) error,
) error {
	one := func(token string) (P, error) {
		ctx, cancel := a.request()
		defer cancel()
		return read(ctx, token)
	}
	all, err := one(flags.PageToken)
	if err != nil {
		return err
	}
	for flags.All && all.GetNextPageToken() != "" {
		next, err := one(all.GetNextPageToken())
		if err != nil {
			return err
		}
		m := all.ProtoReflect()
		m.Clear(m.Descriptor().Fields().ByName("next_page_token")) // the last page has none
		proto.Merge(all, next)
	}
	if output.json() {
		return printMessage(a.Stdout, all)
	}
	if err := show(all); err != nil {
		return err
	}
	return printMore(a, all.GetNextPageToken())
}

// printMore prints how to get the next page.
func printMore(a *app, token string) error {
	if token == "" {
		return nil
	}
	_, err := fmt.Fprintf(a.Stdout, "\nmore: --page-token %s, or --all\n", shellWord(token))
	return err
}

// timeFrom parses a time, a date (midnight UTC) or a duration from now. It returns nil for "".
func timeFrom(flag, value string) (*timestamppb.Timestamp, error) {
	if value == "" {
		return nil, nil
	}
	if d, err := time.ParseDuration(value); err == nil {
		return timestamppb.New(time.Now().Add(d)), nil
	}
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		t, err = time.Parse(time.DateOnly, value)
	}
	if err != nil {
		return nil, usageError(fmt.Errorf("%s: must be a time, such as 2026-11-20T15:04:05Z, a date (midnight UTC), or a duration, such as 90s", flag))
	}
	return timestamppb.New(t), nil
}

var errBothKeys = errors.New("set either --task or --idempotency-key")
