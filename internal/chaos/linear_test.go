//go:build linux

package chaos

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// never is the end time of an operation without a response.
const never = math.MaxInt64

// chainModel is the specification of a process: a chain to which operations are appended. The input
// is the operation; "" reads the chain. The output is the chain after the operation, or nil if it
// is unknown.
func chainModel(begin link) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return begin },
		Step: func(state, input, output any) (bool, any) {
			at, got := state.(link), output.(*link)
			if input == "" {
				return got == nil || *got == at, at
			}
			if got != nil && got.n != at.n+1 {
				return false, at // this excludes most candidates without a hash
			}
			next := at.append(input.(string))
			return got == nil || *got == next, next
		},
		DescribeOperation: func(input, output any) string {
			if got := output.(*link); got != nil {
				return fmt.Sprintf("%s → %v", cmp.Or(input.(string), "the end"), got)
			}
			return input.(string) + " → ?"
		},
		DescribeState: func(state any) string { return state.(link).String() },
	}
}

// journal finds the operations of clients by process and text.
type journal map[string]*entry

func newJournal(entries []*entry) (j journal, origin time.Time) {
	j = journal{}
	for _, e := range entries {
		j[e.process+" "+e.op] = e
		if origin.IsZero() || e.begun.Before(origin) {
			origin = e.begun
		}
	}
	return j, origin
}

// operations returns the operations of a process in the order of its chain. Operations with a
// response have the output that the client received. Operations without a response never end, and
// have the output that the chain shows. Operations that are not in the chain had no effect and are
// omitted.
func (h *history) operations(process string, entries journal, origin time.Time) []porcupine.Operation {
	var ops []porcupine.Operation
	var timerSet int64 // when the operation that set the timer began
	for _, s := range h.applied {
		op := porcupine.Operation{Input: s.op, Output: &s.link, Return: never}
		e := entries[process+" "+s.op]
		switch cause, sent := sender(s.op); {
		case e != nil:
			op.Call = int64(e.begun.Sub(origin))
			if e.outcome == acked && !e.notify { // an accepted operation is done later
				op.Return, op.Output = int64(e.ended.Sub(origin)), chainIn(e)
			}
			if strings.Contains(s.op, askTimer) {
				timerSet = op.Call
			}
		case sent && entries[cause] != nil:
			op.Call = int64(entries[cause].begun.Sub(origin))
		case strings.HasPrefix(s.op, timerOp):
			op.Call = timerSet
		}
		ops = append(ops, op)
	}
	end := int64(0)
	for _, e := range entries {
		end = max(end, int64(e.ended.Sub(origin)))
	}
	last := h.last
	return append(ops, porcupine.Operation{Input: "", Output: &last, Call: end + 1, Return: end + 2})
}

// chainIn returns the chain in the response of a client, or nil if the response contains none.
func chainIn(e *entry) *link {
	l, err := parseLink(e.answer[:max(0, len(e.answer)-4)]) // without the attempt
	if err != nil {
		return nil
	}
	return &l
}

// linearizable checks that the operations of each process have an order that explains every
// response. In this order, an operation that began after the response to another operation comes
// after that operation.
func linearizable(t testing.TB, histories map[string]*history, entries []*entry) {
	t.Helper()
	all, origin := newJournal(entries)
	calls, longest := 0, 0
	for process, h := range histories {
		ops := h.operations(process, all, origin)
		calls, longest = calls+len(ops), max(longest, len(ops))
		if porcupine.CheckOperations(chainModel(link{}), ops) {
			continue
		}
		path, err := draw(os.TempDir(), ops)
		t.Errorf("the calls of %s are not linearizable: %s shows where (%v)", process, path, err)
	}
	t.Logf("linearizable: %d operations on %d processes, at most %d on one", calls, len(histories), longest)
}

// draw writes a page that shows the first operation without a valid position, and enough operations
// before it to see the reason.
func draw(dir string, ops []porcupine.Operation) (path string, err error) {
	end := sort.Search(len(ops), func(n int) bool { return !porcupine.CheckOperations(chainModel(link{}), ops[:n]) })
	for size := 32; ; size *= 2 {
		first, begin := max(0, end-size), link{}
		if first > 0 && ops[first-1].Output.(*link) != nil {
			begin = *ops[first-1].Output.(*link)
		}
		shown := slices.Clone(ops[first:end])
		for i := range shown {
			shown[i].ClientId = i
		}
		model := chainModel(begin)
		legal, info := porcupine.CheckOperationsVerbose(model, shown, 0)
		if legal == porcupine.Ok && first > 0 {
			continue
		}
		return write(dir, model, info)
	}
}

func write(dir string, model porcupine.Model, info porcupine.LinearizationInfo) (path string, err error) {
	file, err := os.CreateTemp(dir, "progressor-linearizability-*.html")
	if err != nil {
		return "", err
	}
	defer file.Close()
	return file.Name(), porcupine.Visualize(model, info, file)
}
