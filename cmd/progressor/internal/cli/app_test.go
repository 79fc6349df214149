package cli

import (
	"context"
	"os"
	"testing"
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// withSignals returns an app whose signals the test sends.
func withSignals(t *testing.T) (*App, chan<- os.Signal) {
	t.Helper()
	signals := make(chan os.Signal)
	return newApp(t.Context(), Main{Signals: signals}, colorNever), signals
}

// Ctrl-C ends the wait of commands such as `run start --wait`. The context of their request also
// listens for the signal. The wait ends even if that context receives the signal.
func TestOneSignalEndsAllContexts(t *testing.T) {
	t.Parallel()
	for range 50 {
		a, signals := withSignals(t)
		request, cancelRequest := a.Request()
		wait, cancelWait := a.Interruptible()
		signals <- os.Interrupt
		for what, ctx := range map[string]context.Context{"request": request, "wait": wait} {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
				t.Fatalf("the %s continues after Ctrl-C", what)
			}
		}
		later, cancelLater := a.Interruptible()
		<-later.Done() // a context that begins after the signal ends at once
		cancelLater()
		cancelWait()
		cancelRequest()
	}
}

// A list requests each page with its own timeout, so an engine that accepts a request and never
// answers does not block it.
func TestPagesAreBounded(t *testing.T) {
	t.Parallel()
	a, _ := withSignals(t)
	read := 0
	c := struct {
		OutputFlag
		PageFlags
	}{PageFlags: PageFlags{All: true, PageSize: 7}}
	err := PrintPages(a, c,
		func(ctx context.Context, req *progressorv1.ListBulksRequest) (*progressorv1.ListBulksResponse, error) {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > ReadTimeout {
				t.Errorf("page %q is read until %v, %v", req.GetPageToken(), deadline, ok)
			}
			if req.GetPageSize() != 7 || read > 0 && req.GetPageToken() != "more" {
				t.Errorf("page %d is requested by %v", read, req)
			}
			if read++; read < 3 {
				return &progressorv1.ListBulksResponse{NextPageToken: "more"}, nil
			}
			return &progressorv1.ListBulksResponse{}, nil
		}, &progressorv1.ListBulksRequest{}, func(*progressorv1.ListBulksResponse) error { return nil })
	if err != nil || read != 3 {
		t.Errorf("%d pages, %v", read, err)
	}
}
