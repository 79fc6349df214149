package durable

import (
	"log/slog"
	"runtime"
	"strconv"
	"strings"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
)

// Ctx is the context of a durable function or of a branch of Each. It is valid only in the
// goroutine of its function. It is not a context.Context: the body of a step gets one of those.
type Ctx struct{ branch *branch }

// Process returns the namespace and the ID of the process.
func (c Ctx) Process() process.Key {
	c.branch.enter()
	p := c.branch.owner.request.GetProcess()
	return process.Key{Namespace: p.GetNamespace(), ProcessID: p.GetProcessId()}
}

// branch is a goroutine that runs user code: the function, or an item of Each.
type branch struct {
	owner   *run
	scope   string // prefix of all names: empty, or "parcel[1]/"
	body    func(*branch)
	names   map[entryKey]int // how often each name was used; guarded by mu of the run
	own     goroutine
	resume  chan struct{}
	started bool
	ended   bool
	wait    *wait // nil while it runs
}

// wait describes what a branch waits for.
type wait struct {
	ready func() bool
	step  *stepRun   // nil unless it waits for a step
	until []entryKey // any one of these entries ends the wait; empty if step is set
	flush bool       // it waits until the new entries are stored
}

func (r *run) newBranch(scope string, body func(*branch)) *branch {
	b := &branch{owner: r, scope: scope, body: body, names: map[entryKey]int{}, resume: make(chan struct{})}
	r.branches = append(r.branches, b)
	return b
}

// run is the body of the branch's goroutine.
func (b *branch) run() {
	completed := false
	defer func() {
		if v := recover(); v != nil {
			b.owner.recovered(v)
		} else if !completed && !b.owner.isOver() && b.owner.failure() == nil {
			b.owner.fail(processor.Fail(ReasonMisuse, "the function %s called runtime.Goexit, as t.FailNow does",
				b.owner.program.name).NonRetryable())
		}
		b.ended = true
		b.handBack()
	}()
	b.own.run(func() { b.body(b) })
	completed = true
}

// handBack lets the driver continue.
func (b *branch) handBack() {
	select {
	case b.owner.yield <- struct{}{}:
	case <-b.owner.over:
	}
}

// isIdle reports whether no task runs the function, because it is parked or its run is over.
func (r *run) isIdle() bool { return r.parked.Load() || r.isOver() }

func (r *run) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// enter begins an operation. It ends the goroutine if the run is over or the operation is not
// allowed here.
func (b *branch) enter() {
	r := b.owner
	switch {
	case !b.own.hasRoot():
		r.misplaced()
	case r.isIdle() || r.failure() != nil:
		runtime.Goexit()
	case r.current != b: // the Ctx of another branch
		r.misplaced()
	}
}

// verify ends the calling goroutine if it is not that of the branch. Operations that change
// something call verify, because enter does not notice the Ctx of another process that runs at the
// same time.
func (b *branch) verify() {
	if !b.own.isCurrent() {
		b.owner.misplaced()
	}
}

// misplaced ends the calling goroutine, which uses the Ctx of a branch outside that branch's
// goroutine.
func (r *run) misplaced() {
	what := ""
	r.mu.Lock()
	for own, body := range r.bodies {
		if own.isCurrent() {
			what = body
		}
	}
	r.mu.Unlock()
	message := "a durable operation outside the goroutine of its Ctx: " +
		"call it in the function, or in a branch of Each with the branch's Ctx"
	if what != "" {
		message = "a durable operation in " + what + ": call it in the function instead"
	}
	if r.isIdle() { // no task is left that could fail
		slog.Error("durable function misused", "function", r.program.name, "error", caller()+": "+message)
		runtime.Goexit()
	}
	r.misuse("%s", message)
}

// name begins an operation of this kind and returns its name in the journal.
func (b *branch) name(kind, name string) string {
	b.enter()
	if !isName(name) {
		b.owner.misuse("the name %q must have 1 to %d letters, digits, dots, underscores and hyphens", name,
			maxNameBytes)
	}
	key := entryKey{kind, name}
	b.owner.mu.Lock() // a goroutine of another process may misuse the Ctx at the same time
	b.names[key]++
	full := b.scope + name
	if n := b.names[key]; n > 1 {
		full += "#" + strconv.Itoa(n)
	}
	if b.owner.order != nil {
		b.owner.order[entryKey{kind, full}] = len(b.owner.order)
	}
	if b.owner.check != nil {
		b.owner.check.begin(entryKey{kind, full})
	}
	b.owner.mu.Unlock()
	if len(full) > maxFullName {
		b.owner.misuse("the name %q is too long with its scope: %d bytes, at most %d are allowed", name, len(full),
			maxFullName)
	}
	return full
}

func isName(name string) bool {
	return name != "" && len(name) <= maxNameBytes && strings.IndexFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-'
	}) < 0
}

// await waits until the journal contains what the branch needs.
func (b *branch) await(w *wait) {
	if w.ready() {
		return
	}
	b.verify()
	b.wait = w
	b.handBack()
	select {
	case <-b.resume:
	case <-b.owner.over:
		runtime.Goexit()
	}
}

// record adds an entry to the journal. If too many are new, it first waits until they are stored.
func (b *branch) record(e entry) {
	b.verify()
	if j := b.owner.journal; j.isFull() {
		b.await(&wait{flush: true, ready: func() bool { return !j.isFull() }})
	}
	b.owner.journal.add(e)
}
