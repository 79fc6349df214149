package durablevet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/types/typeutil"
)

// trap is a group of functions that a durable function must not call outside the bodies of steps.
type trap struct {
	path  string
	names []string // the functions, or nil for all that are not listed in except
	// except are functions that return the same value in each replay.
	except []string
	// problem says what is wrong, and use what to do instead.
	problem, use string
}

const (
	otherTime   = "returns another time in a replay"
	otherNumber = "returns another number in a replay"
	otherID     = "returns another ID in a replay"
	inAStep     = "move it into the body of a step"
)

var traps = []trap{
	{path: "time", names: []string{"Now"}, problem: otherTime, use: "use durable.Now"},
	{path: "time", names: []string{"Since", "Until"}, problem: "returns another duration in a replay",
		use: "use durable.Now and subtract"},
	{path: "time", names: []string{"Sleep"}, problem: "waits again in each replay", use: "use durable.Sleep"},
	{path: "time", names: []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Tick"},
		problem: "starts again in each replay", use: "use durable.After"},
	{path: "math/rand", except: []string{"New", "NewSource", "NewZipf"}, problem: otherNumber,
		use: "use durable.Rand"},
	{path: "math/rand/v2", except: []string{"New", "NewPCG", "NewChaCha8", "NewZipf"}, problem: otherNumber,
		use: "use durable.Rand"},
	{path: "crypto/rand", problem: otherNumber, use: "use durable.Rand or durable.UUID, or " + inAStep},
	{path: "github.com/google/uuid", problem: otherID, use: "use durable.UUID", names: []string{"New", "NewString",
		"NewRandom", "NewRandomFromReader", "NewUUID", "NewV6", "NewV7", "NewV7FromReader", "NewDCEGroup",
		"NewDCEPerson", "NewDCESecurity"}},
	{path: "github.com/gofrs/uuid", names: gofrs, problem: otherID, use: "use durable.UUID"},
	{path: "github.com/gofrs/uuid/v5", names: gofrs, problem: otherID, use: "use durable.UUID"},
	{path: "github.com/satori/go.uuid", names: gofrs, problem: otherID, use: "use durable.UUID"},
	{path: "github.com/oklog/ulid/v2", names: []string{"Make"}, problem: otherID,
		use: "use durable.UUID"},
	{path: "github.com/rs/xid", names: []string{"New"}, problem: otherID, use: "use durable.UUID"},
	{path: "github.com/segmentio/ksuid", names: []string{"New", "NewRandom"}, problem: otherID,
		use: "use durable.UUID"},
}

var gofrs = []string{"NewV1", "NewV2", "NewV4", "NewV6", "NewV7"}

// waits are the methods that wait for another goroutine, by package.
var waits = []trap{
	{path: "sync", names: []string{"Lock", "RLock"}, problem: "can block the task",
		use: "do what needs the lock in the body of a step"},
	{path: "sync", names: []string{"Wait"}, problem: "waits for goroutines, which a replay starts again",
		use: "use durable.Each"},
	{path: "golang.org/x/sync/errgroup", names: []string{"Wait"},
		problem: "waits for goroutines, which a replay starts again", use: "use durable.Each"},
}

// trapOf returns the trap for a call and the called function, or nil.
func trapOf(info *types.Info, call *ast.CallExpr) (*trap, types.Object) {
	callee, ok := typeutil.Callee(info, call).(*types.Func)
	if !ok || callee.Pkg() == nil {
		return nil, nil
	}
	table := traps
	if callee.Signature().Recv() != nil {
		table = waits // methods such as those of rand.Rand and time.Time depend on their receiver
	}
	for i, t := range table {
		if t.path == callee.Pkg().Path() && (t.names == nil || slices.Contains(t.names, callee.Name())) &&
			!slices.Contains(t.except, callee.Name()) {
			return &table[i], callee
		}
	}
	return nil, nil
}

// operation is a call that is a durable operation, or that passes a Ctx to a function.
type operation struct {
	name    string
	durable bool // it is a function of the package durable
}

func (s *scan) operation(call *ast.CallExpr) (operation, bool) {
	callee, ok := typeutil.Callee(s.info, call).(*types.Func)
	if !ok || callee.Pkg() == nil || callee.Pkg().Path() != durablePath {
		return operation{name: types.ExprString(call.Fun)}, s.passesCtx(call)
	}
	receiver := callee.Signature().Recv()
	if receiver == nil {
		return operation{name: "durable." + callee.Name(), durable: true}, s.passesCtx(call)
	}
	if isCtx(receiver.Type()) {
		return operation{name: types.ExprString(call.Fun), durable: true}, true
	}
	return operation{name: types.ExprString(call.Fun), durable: true},
		isNamed(receiver.Type(), durablePath, "Timer", "Queue", "Future") && callee.Name() != "Process"
}

// isUnsorted reports whether an expression is a map, or contains the keys or values of one in no
// particular order.
func (s *scan) isUnsorted(e ast.Expr) bool {
	if t := s.info.TypeOf(e); t != nil {
		if _, ok := t.Underlying().(*types.Map); ok {
			return true
		}
	}
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	callee := typeutil.Callee(s.info, call)
	if isObject(callee, "slices", "Collect") && len(call.Args) == 1 {
		return s.isUnsorted(call.Args[0])
	}
	return isObject(callee, "maps", "Keys", "Values", "All") ||
		isObject(callee, "golang.org/x/exp/maps", "Keys", "Values")
}

// derived returns the variable with the key of a loop over a map, and the variables in the loop
// body that are defined from the key.
func (s *scan) derived(loop *ast.RangeStmt) map[types.Object]bool {
	keys := map[types.Object]bool{}
	key := loop.Key
	if _, ok := s.info.TypeOf(loop.X).Underlying().(*types.Slice); ok {
		key = loop.Value
	}
	if name, ok := key.(*ast.Ident); ok && !s.areValues(loop.X) {
		keys[s.info.ObjectOf(name)] = true
	}
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		var left, right []ast.Expr
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				left, right = n.Lhs, n.Rhs
			}
		case *ast.ValueSpec:
			right = n.Values
			for _, name := range n.Names {
				left = append(left, name)
			}
		}
		for i, one := range left {
			name, ok := one.(*ast.Ident)
			if ok && len(right) > 0 && s.mentions(right[min(i, len(right)-1)], keys) {
				keys[s.info.ObjectOf(name)] = true
			}
		}
		return true
	})
	return keys
}

// areValues reports whether an expression lists the values of a map, which may repeat.
func (s *scan) areValues(e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	callee := typeutil.Callee(s.info, call)
	if isObject(callee, "slices", "Collect") && len(call.Args) == 1 {
		return s.areValues(call.Args[0])
	}
	return isObject(callee, "maps", "Values") || isObject(callee, "golang.org/x/exp/maps", "Values")
}

// mentions reports whether an expression uses one of the variables.
func (s *scan) mentions(e ast.Expr, variables map[types.Object]bool) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok && variables[s.info.Uses[name]] {
			found = true
		}
		return !found
	})
	return found
}
