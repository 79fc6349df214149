package engine

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/internal/parked"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage"
)

// parkingTest parks values for processes of one namespace, and counts those that were dropped.
type parkingTest struct {
	*parking
	ns      *namespace
	mu      sync.Mutex
	dropped map[string]int
}

func newParkingTest(maximum int) *parkingTest {
	return &parkingTest{parking: newParking(maximum), ns: &namespace{config: []byte("a")}, dropped: map[string]int{}}
}

// claimOfParked returns a claim of a process whose last event is 3.
func claimOfParked(id string) *storage.Claim {
	return &storage.Claim{
		Namespace: "ns", ProcessID: id, TaskType: process.TaskCall, FirstEventID: 1, LastEventID: 3,
		CreatedTime: time.Unix(1e9, 0), Status: process.StatusRunning,
	}
}

// kept returns a value of the given size that depends on the first 3 events.
func (p *parkingTest) kept(id string, bytes int) *processor.Kept {
	k := &processor.Kept{}
	k.Park(id, processor.Parked{LastEventID: 3, Bytes: bytes}, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.dropped[id]++
	})
	return k
}

// usage describes the number and the size of the parked values.
func (p *parkingTest) usage() string {
	values, bytes := p.Usage()
	return fmt.Sprintf("%d with %d bytes", values, bytes)
}

// drops returns how often a value was dropped.
func (p *parkingTest) drops(id string) int {
	p.AwaitDrops(time.Minute)
	return p.dropped[id]
}

// settles stores a result of a claim without events, and reports whether the value was parked.
func (p *parkingTest) settles(id string, bytes int, change func(*toPark, *storage.Completion, *storage.Saved)) bool {
	done := &storage.Completion{Result: storage.Result{Outcome: storage.Finished}}
	saved, park := &storage.Saved{}, &toPark{kept: p.kept(id, bytes), generation: p.Generation(), config: p.ns.config}
	if change != nil {
		change(park, done, saved)
	}
	park.settle(p.parking, claimOfParked(id), done, saved)
	if park.kept != nil { // as at the end of the attempt
		park.kept.Drop()
	}
	return park.kept == nil
}

// A value is parked only if the result on which it depends is stored, and the process then waits.
func TestParkedValueDependsOnStoredResult(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*toPark, *storage.Completion, *storage.Saved)
		parked bool
	}{
		"stored": {parked: true},
		"failed": {change: func(_ *toPark, d *storage.Completion, _ *storage.Saved) { d.Outcome = storage.Failed }},
		"retried": {change: func(_ *toPark, d *storage.Completion, _ *storage.Saved) {
			d.Outcome = storage.Retry
		}},
		"completed": {change: func(_ *toPark, d *storage.Completion, _ *storage.Saved) {
			d.Outcome = storage.Completed
		}},
		"restarted": {change: func(_ *toPark, d *storage.Completion, _ *storage.Saved) { d.RestartHistory = true }},
		"another result": {change: func(_ *toPark, d *storage.Completion, _ *storage.Saved) {
			d.Events = make([]storage.NewEvent, 1)
		}},
		"the response is lost": {change: func(_ *toPark, _ *storage.Completion, s *storage.Saved) {
			s.ResponseLost = true
		}},
		"before a failover": {change: func(p *toPark, _ *storage.Completion, _ *storage.Saved) { p.generation-- }},
		"the next task follows": {change: func(_ *toPark, _ *storage.Completion, s *storage.Saved) {
			s.Next = claimOfParked("p")
		}},
		"too large": {change: func(p *toPark, _ *storage.Completion, _ *storage.Saved) {
			p.kept.Parked().Bytes = parked.MaxBytes/16 + 1
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newParkingTest(10)
			if got := p.settles("p", 100, test.change); got != test.parked {
				t.Errorf("parked is %t, want %t", got, test.parked)
			}
			if taken := p.take(p.ns, claimOfParked("p")).Value() != nil; taken != test.parked {
				t.Errorf("taken is %t, want %t", taken, test.parked)
			}
			if dropped := p.drops("p") == 1; dropped == test.parked {
				t.Errorf("dropped %d times", p.drops("p"))
			}
		})
	}
}

// A claim gets the value only if its process is in the state in which the value was parked.
func TestParkedValueFitsClaim(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*namespace, *storage.Claim)
		taken  bool
	}{
		"the same state": {change: func(*namespace, *storage.Claim) {}, taken: true},
		"a timer": {change: func(_ *namespace, c *storage.Claim) {
			c.TaskType = process.TaskTimeout
		}, taken: true},
		"a notification": {change: func(_ *namespace, c *storage.Claim) {
			c.TaskType = process.TaskNotify
		}, taken: true},
		"a cancel":         {change: func(_ *namespace, c *storage.Claim) { c.TaskType = process.TaskCancel }},
		"a repair":         {change: func(_ *namespace, c *storage.Claim) { c.TaskType = process.TaskRepair }},
		"more events":      {change: func(_ *namespace, c *storage.Claim) { c.LastEventID++ }},
		"fewer events":     {change: func(_ *namespace, c *storage.Claim) { c.LastEventID-- }},
		"a new history":    {change: func(_ *namespace, c *storage.Claim) { c.FirstEventID++ }},
		"another process":  {change: func(_ *namespace, c *storage.Claim) { c.CreatedTime = c.CreatedTime.Add(1) }},
		"another function": {change: func(ns *namespace, _ *storage.Claim) { ns.config = []byte("b") }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newParkingTest(10)
			p.settles("p", 100, nil)
			c := claimOfParked("p")
			test.change(p.ns, c)
			if taken := p.take(p.ns, c).Value() != nil; taken != test.taken {
				t.Errorf("taken is %t, want %t", taken, test.taken)
			}
			if dropped := p.drops("p") == 1; dropped == test.taken {
				t.Errorf("dropped %d times", p.drops("p"))
			}
			if p.take(p.ns, claimOfParked("p")).Value() != nil || p.usage() != "0 with 0 bytes" {
				t.Errorf("the value is still parked: %s", p.usage())
			}
		})
	}
}

// If the next task follows at once, it gets the value only if the value fits the task.
func TestParkedValueFitsNextTask(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*namespace, *storage.Claim)
		kept   bool
	}{
		"a call":      {change: func(*namespace, *storage.Claim) {}, kept: true},
		"a repair":    {change: func(_ *namespace, c *storage.Claim) { c.TaskType = process.TaskRepair }},
		"more events": {change: func(_ *namespace, c *storage.Claim) { c.LastEventID++ }},
		"a changed namespace": {change: func(ns *namespace, _ *storage.Claim) {
			ns.config = []byte("b")
		}},
		"a process of a kind": {change: func(_ *namespace, c *storage.Claim) { c.Kind = "kind" }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newParkingTest(10)
			p.ns.processor = processor.Echo()
			next := &turn{claim: claimOfParked("p"), kept: p.kept("p", 100), config: p.ns.config}
			test.change(p.ns, next.claim)
			p.begin(p.ns, next)
			if kept := next.kept.Parked() != nil; kept != test.kept || p.drops("p") == 0 != test.kept {
				t.Errorf("kept is %t, want %t; dropped %d times", kept, test.kept, p.drops("p"))
			}
		})
	}
}

// The oldest values are dropped if there are too many, if they are too large together, or if they
// are too old.
func TestParkingIsBounded(t *testing.T) {
	p := newParkingTest(2)
	for _, id := range []string{"a", "b", "a", "c"} {
		p.settles(id, 100, nil)
	}
	if p.drops("a") != 1 || p.drops("b") != 1 || p.usage() != "2 with 200 bytes" {
		t.Errorf("dropped %v, parked are %s", p.dropped, p.usage())
	}
	p = newParkingTest(100)
	full := fmt.Sprintf("16 with %d bytes", parked.MaxBytes)
	for id := range 18 {
		p.settles(string(rune('a'+id)), parked.MaxBytes/16, nil)
	}
	if p.drops("a") != 1 || p.drops("b") != 1 || p.usage() != full {
		t.Errorf("dropped %v, parked are %s", p.dropped, p.usage())
	}
	p.Expire(time.Now().Add(-time.Hour))
	if p.usage() != full {
		t.Error("values expire too early")
	}
	p.Expire(time.Now().Add(time.Second))
	if p.usage() != "0 with 0 bytes" || p.drops("c") != 1 {
		t.Errorf("parked are %s after they have expired", p.usage())
	}
	p = newParkingTest(0)
	if p.settles("a", 1, nil); p.usage() != "0 with 0 bytes" || p.drops("a") != 1 {
		t.Error("a value is parked, although none may be")
	}
}

// After a failover, no value is parked that existed before. After close, none is parked.
func TestParkingIsCleared(t *testing.T) {
	p := newParkingTest(10)
	p.settles("a", 100, nil)
	before := p.Generation()
	p.Clear()
	if p.settles("b", 100, func(park *toPark, _ *storage.Completion, _ *storage.Saved) { park.generation = before }) {
		t.Error("a value from before the failover is parked")
	}
	p.settles("c", 100, nil)
	p.Close(time.Minute)
	if p.settles("d", 100, nil) || p.usage() != "0 with 0 bytes" {
		t.Error("a value is parked after close")
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if p.drops(id) != 1 {
			t.Errorf("value %s was dropped %d times", id, p.drops(id))
		}
	}
}
