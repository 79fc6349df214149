package durablevet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"
)

// walker reads code of a durable function. All this code has the same role.
type walker struct {
	pass     *analysis.Pass
	scan     *scan
	role     role
	function ast.Node     // the innermost function with a Ctx
	body     *ast.FuncLit // the body of a step, Accept, or branch whose assignments are checked, or nil
}

func (w *walker) walk(n ast.Node) {
	if n != nil {
		ast.Inspect(n, w.visit)
	}
}

// visit is called for each node. It returns false if it has read the children of the node.
func (w *walker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncLit:
		w.literal(n)
		return false
	case *ast.GoStmt:
		w.goStatement(n)
		return false
	case *ast.CallExpr:
		w.call(n)
	case *ast.SelectStmt:
		return w.selects(n)
	case *ast.UnaryExpr:
		if n.Op == token.ARROW && w.repeats() {
			w.report(n.Pos(), "a receive from a channel waits again in each replay: "+
				"use durable.Calls or durable.After, or "+inAStep)
		}
	case *ast.SendStmt:
		if w.repeats() {
			w.report(n.Pos(), "a send to a channel is repeated in each replay: "+inAStep)
		}
	case *ast.RangeStmt:
		w.ranges(n)
	case *ast.AssignStmt:
		for _, left := range n.Lhs {
			w.assigns(left)
		}
	case *ast.IncDecStmt:
		w.assigns(n.X)
	}
	return true
}

// repeats reports whether each replay runs the code again.
func (w *walker) repeats() bool { return w.role == roleFunction || w.role == roleBranch }

func (w *walker) report(pos token.Pos, message string) {
	w.pass.Report(analysis.Diagnostic{Pos: pos, Message: message})
}

// literal reads a function literal in its role.
func (w *walker) literal(n *ast.FuncLit) {
	inner := *w
	r, known := w.scan.roles[n]
	switch {
	case takesCtx(w.pass.TypesInfo, n.Type):
		inner.function, inner.role, inner.body = n, roleFunction, nil
		if r == roleBranch {
			inner.role, inner.body = r, n
		}
	case r == roleStep || r == roleAccept:
		inner.role, inner.body = r, n
	case w.role.isBody(): // it belongs to the body
	case known && (r != roleUnknown || w.repeats()):
		inner.role, inner.body = r, nil
	}
	inner.walk(n.Body)
}

// goStatement reads the arguments of the call in this goroutine, and the function in another one.
func (w *walker) goStatement(n *ast.GoStmt) {
	for _, arg := range n.Call.Args {
		w.walk(arg)
	}
	inner := *w
	inner.role = roleGoroutine
	if op, ok := w.scan.operation(n.Call); ok {
		inner.reportOperation(n.Pos(), op)
	}
	w.walk(n.Call.Fun)
}

func (w *walker) call(n *ast.CallExpr) {
	if op, ok := w.scan.operation(n); ok {
		w.reportOperation(n.Pos(), op)
		w.checkOperation(n)
	}
	if w.repeats() {
		if t, callee := trapOf(w.pass.TypesInfo, n); t != nil {
			w.report(n.Pos(), nameOf(callee)+" "+t.problem+": "+t.use)
		}
	}
	w.reads(n)
}

// nameOf returns the name of a function as code uses it, such as "time.Now" or "sync.Mutex.Lock".
func nameOf(callee types.Object) string {
	name := callee.Pkg().Name() + "."
	if f, ok := callee.(*types.Func); ok && f.Signature().Recv() != nil {
		t := f.Signature().Recv().Type()
		if pointer, ok := t.(*types.Pointer); ok {
			t = pointer.Elem()
		}
		if named, ok := t.(*types.Named); ok {
			name += named.Obj().Name() + "."
		}
	}
	return name + callee.Name()
}

// reportOperation reports an operation that fails because of its place.
func (w *walker) reportOperation(pos token.Pos, op operation) {
	switch {
	case w.role == roleGoroutine:
		w.report(pos, op.name+" fails in another goroutine: use durable.Each for steps that run in parallel")
	case w.role.isBody():
		w.report(pos, op.name+" fails in "+w.role.where()+": call it in the function, outside the body")
	}
}

// checkOperation reports an operation of the function that has the wrong Ctx, or unsorted items.
func (w *walker) checkOperation(n *ast.CallExpr) {
	if !w.repeats() {
		return
	}
	if name, ok := w.scan.ctxOf(n).(*ast.Ident); ok {
		ctx := w.pass.TypesInfo.Uses[name]
		if ctx != nil && contains(w.scan.root, ctx.Pos()) && !contains(w.function, ctx.Pos()) {
			w.report(name.Pos(), "the Ctx "+name.Name+" belongs to another function: use the Ctx of this one")
		}
	}
	callee := typeutil.Callee(w.pass.TypesInfo, n)
	if isObject(callee, durablePath, "Each") && len(n.Args) > 2 && w.scan.isUnsorted(n.Args[2]) {
		w.report(n.Args[2].Pos(), "the order of a map differs in a replay: sort the items, "+
			"as slices.Sorted(maps.Keys(m)) does")
	}
}

// selects reports a select that each replay runs again. It then reads the cases without their
// channel operations.
func (w *walker) selects(n *ast.SelectStmt) bool {
	if !w.repeats() {
		return true
	}
	w.report(n.Pos(), "select can choose another case in a replay: use durable.First, or "+inAStep)
	for _, clause := range n.Body.List {
		for _, s := range clause.(*ast.CommClause).Body {
			w.walk(s)
		}
	}
	return false
}

func (w *walker) ranges(n *ast.RangeStmt) {
	if n.Tok == token.ASSIGN {
		w.assigns(n.Key)
		w.assigns(n.Value)
	}
	if !w.repeats() {
		return
	}
	if t := w.pass.TypesInfo.TypeOf(n.X); t != nil {
		if _, ok := t.Underlying().(*types.Chan); ok {
			w.report(n.Pos(), "a loop over a channel waits again in each replay: use durable.Calls, or "+inAStep)
			return
		}
	}
	if !w.scan.isUnsorted(n.X) {
		return
	}
	if op := w.startedIn(n); op != "" {
		w.report(n.Pos(), op+" is called in the order of a map, which differs in a replay: "+
			"sort the keys, as slices.Sorted(maps.Keys(m)) does")
	}
}

// startedIn returns the name of the first operation in the body of a loop over a map whose effect
// depends on the order, or the empty string. An operation whose name contains the key is found in
// the journal in any order. This is also true for the operations in the branches of an Each with
// such a name.
func (w *walker) startedIn(n *ast.RangeStmt) string {
	keys := w.scan.derived(n)
	found := ""
	ast.Inspect(n.Body, func(n ast.Node) bool {
		if literal, ok := n.(*ast.FuncLit); ok && w.scan.roles[literal] == roleBranch {
			return false
		}
		call, ok := n.(*ast.CallExpr)
		if !ok || found != "" {
			return found == ""
		}
		op, ok := w.scan.operation(call)
		isVersion := isObject(typeutil.Callee(w.pass.TypesInfo, call), durablePath, "Version")
		if !ok || isVersion || w.scan.ctxOf(call) == nil {
			return true // the methods of timers, calls and children depend on their receiver
		}
		if op.durable && len(call.Args) > 1 && isString(w.pass.TypesInfo.TypeOf(call.Args[1])) &&
			w.scan.mentions(call.Args[1], keys) {
			return true
		}
		found = op.name
		return false
	})
	return found
}

func isString(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsString != 0
}

// assigns reports an assignment to a variable of the function in a body.
func (w *walker) assigns(left ast.Expr) {
	name, indirect := w.target(left)
	if name == nil || w.body == nil || !w.isCaptured(name, indirect) {
		return
	}
	switch w.role {
	case roleStep:
		w.report(left.Pos(), "the body of a step assigns "+name.Name+", but a replay does not run it: "+
			"return the value instead")
	case roleAccept:
		w.report(left.Pos(), "Accept assigns "+name.Name+", but a replay does not run it: "+
			"assign it after Next instead")
	case roleBranch:
		if !indirect {
			w.report(left.Pos(), "a branch of Each assigns "+name.Name+", but the order of branches differs "+
				"in a replay: return the value instead")
		}
	}
}

// target returns the variable that an assignment changes, or nil. indirect reports whether the
// assignment changes it through a pointer, slice or map.
func (w *walker) target(e ast.Expr) (name *ast.Ident, indirect bool) {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x, indirect
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e, indirect = x.X, true
		case *ast.SelectorExpr:
			field, ok := w.pass.TypesInfo.Selections[x]
			if !ok {
				return nil, false // a variable of another package
			}
			e, indirect = x.X, indirect || field.Indirect()
		case *ast.IndexExpr:
			_, isArray := w.pass.TypesInfo.TypeOf(x.X).Underlying().(*types.Array)
			e, indirect = x.X, indirect || !isArray
		default:
			return nil, false
		}
	}
}

// isCaptured reports whether a variable belongs to the durable function, outside the body. The
// value that a parameter points to may belong to others, such as a service that counts its
// requests.
func (w *walker) isCaptured(name *ast.Ident, indirect bool) bool {
	variable, ok := w.pass.TypesInfo.Uses[name].(*types.Var)
	return ok && contains(w.scan.root, variable.Pos()) && !contains(w.body, variable.Pos()) &&
		(!indirect || !w.scan.params[variable])
}

// writers are the names of the functions that write to the variables whose addresses they get.
var writers = []string{"Decode", "Scan", "Unmarshal"}

// reads reports a call in a body that reads into a variable of the function.
func (w *walker) reads(call *ast.CallExpr) {
	callee := typeutil.Callee(w.pass.TypesInfo, call)
	if callee == nil || !slices.Contains(writers, callee.Name()) {
		return
	}
	for _, arg := range call.Args {
		if address, ok := ast.Unparen(arg).(*ast.UnaryExpr); ok && address.Op == token.AND {
			w.assigns(address.X)
		}
	}
}
