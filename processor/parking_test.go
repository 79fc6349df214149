package processor

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/progressor-engine/progressor/internal/parked"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// parker parks a value in each task, and counts how often it gets one and how often one is dropped.
// Values are dropped concurrently.
type parker struct {
	got     int
	dropped atomic.Int32
}

func (p *parker) Process(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	kept := KeptOf(ctx)
	if kept.Take() != nil {
		p.got++
	}
	if kept.Keeps() {
		return nil, errors.New("a value cannot be kept for a task that follows at once")
	}
	drop := func() { p.dropped.Add(1) }
	switch string(r.GetArgs()) {
	case "unusable":
		return nil, kept.NoHistory()
	case "keep":
		kept.Keep("value", drop)
	case "fail":
		kept.Park("value", Parked{}, drop)
		return nil, Fail("x", "as the test wants")
	case "respond with a failure":
		kept.Park("value", Parked{}, drop)
		return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{
			Failure: &progressorv1.Failure{Reason: "x"}}}, nil
	case "reject":
		kept.Park("value", Parked{}, drop)
		return nil, Reject("x", "as the test wants")
	case "large":
		kept.Park("value", Parked{Bytes: 9 << 20}, drop)
	case "panic":
		kept.Park("value", Parked{}, drop)
		panic("as the test wants")
	case "none":
	default:
		kept.Park("value", Parked{Bytes: 100}, drop)
	}
	return Result().Done()
}

// parkingTest sends tasks of the process p.
type parkingTest struct {
	t       *testing.T
	parking *Parking
	parker
}

func (p *parkingTest) process(args, parkedID string) (id string, err error) {
	p.t.Helper()
	resp, err := p.parking.Process(p.t.Context(), &p.parker, &progressorv1.ProcessRequest{
		Process: &progressorv1.Process{Namespace: "ns", ProcessId: "p"}, Args: []byte(args), ParkedId: parkedID,
	})
	if err == nil && resp.GetContinued() != (parkedID != "") {
		p.t.Errorf("continued is %t", resp.GetContinued())
	}
	return resp.GetParkedId(), err
}

// parks sends a task and fails the test unless the processor parks a value.
func (p *parkingTest) parks(args, parkedID string) (id string) {
	p.t.Helper()
	id, err := p.process(args, parkedID)
	if err != nil || id == "" {
		p.t.Fatalf("the ID is %q: %v", id, err)
	}
	return id
}

func (p *parkingTest) want(got, dropped int) {
	p.t.Helper()
	p.parking.values.AwaitDrops(time.Minute)
	if n := int(p.dropped.Load()); p.got != got || n != dropped {
		p.t.Errorf("got %d values and dropped %d, want %d and %d", p.got, n, got, dropped)
	}
}

func (p *parkingTest) needsHistory(args, parkedID string) {
	p.t.Helper()
	_, err := p.process(args, parkedID)
	if !errors.Is(err, ErrHistoryNeeded) {
		p.t.Errorf("the error is %v", err)
	}
}

// A processor gets the value that it has parked under the ID of the request, once.
func TestParking(t *testing.T) {
	p := &parkingTest{t: t, parking: NewParking()}
	first := p.parks("", "")
	second := p.parks("", first)
	if first == second {
		t.Error("two values have the same ID")
	}
	p.want(1, 0)
	p.needsHistory("", first) // another attempt has continued the process
	p.want(1, 1)
	p.needsHistory("", second) // its value was dropped
	third := p.parks("", "")
	p.parks("", "") // the request has the history: another node continues the process
	p.want(1, 2)
	p.needsHistory("", third)
	p.want(1, 3)
}

// A processor that cannot use its value gets the request again, with the history.
func TestParkingWithoutHistory(t *testing.T) {
	p := &parkingTest{t: t, parking: NewParking()}
	p.needsHistory("unusable", p.parks("", ""))
	p.want(1, 0)
	if _, err := p.process("unusable", ""); err != nil {
		t.Errorf("a request with the history: %v", err)
	}
}

// A value is dropped if the response is not a result, or if the value cannot be parked.
func TestParkingDrops(t *testing.T) {
	for _, args := range []string{"fail", "respond with a failure", "reject", "keep", "large", "none"} {
		t.Run(args, func(t *testing.T) {
			p := &parkingTest{t: t, parking: NewParking()}
			id, err := p.process(args, "")
			if id != "" || (err != nil) != (args == "fail" || args == "reject") {
				t.Errorf("the ID is %q: %v", id, err)
			}
			if args == "none" {
				p.want(0, 0)
				return
			}
			p.want(0, 1)
		})
	}
}

// After Close, no value is left, not even one of an attempt that began before Close.
func TestParkingIsClosed(t *testing.T) {
	p := &parkingTest{t: t, parking: NewParking()}
	id := p.parks("", "")
	p.parking.Close()
	p.want(0, 1)
	p.needsHistory("", id)
	resp, err := p.parking.Process(t.Context(), Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		p.parking.Close()
		return p.Process(ctx, r)
	}), &progressorv1.ProcessRequest{})
	if resp.GetParkedId() != "" || err != nil {
		t.Errorf("the ID is %q: %v", resp.GetParkedId(), err)
	}
	p.want(0, 2)
}

// A value is dropped if the processor panics, and if it is too old, even if no request follows.
func TestParkingForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &parkingTest{t: t, parking: NewParking()}
		p.parks("", "")
		time.Sleep(parked.MaxTime - time.Second)
		p.parks("other", "")
		p.want(0, 1)
		time.Sleep(parked.MaxTime + 2*time.Second)
		synctest.Wait()
		p.want(0, 2)
		id := p.parks("", "")
		func() {
			defer func() { _ = recover() }()
			_, _ = p.process("panic", id)
		}()
		p.want(1, 3)
	})
}
