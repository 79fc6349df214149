package durablevet

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/types/typeutil"
)

// role describes when a function literal runs.
type role int

const (
	roleFunction  role = iota // it is a part of the durable function, which each task runs again
	roleStep                  // the body of a step
	roleUndo                  // the function of durable.Undo
	roleAccept                // the function of durable.Accept
	roleBranch                // the function of durable.Each
	roleGoroutine             // it runs in another goroutine
	roleUnknown               // another function may call it at any time, for example in a step
)

// where describes the role of a body in messages.
func (r role) where() string {
	switch r {
	case roleUndo:
		return "an undo"
	case roleAccept:
		return "Accept"
	default:
		return "the body of a step"
	}
}

// isBody reports whether operations are misuse because the literal runs outside the function.
func (r role) isBody() bool { return r == roleStep || r == roleUndo || r == roleAccept }

// scan contains what the walker must know about a durable function before it starts.
type scan struct {
	info     *types.Info
	root     ast.Node // the outermost function with a Ctx
	roles    map[*ast.FuncLit]role
	literals map[types.Object]*ast.FuncLit // the variables that are defined as a function literal
	params   map[types.Object]bool         // the parameters and results of all its functions
}

// scanFunction finds the role of each function literal in root.
func scanFunction(info *types.Info, root ast.Node) *scan {
	s := &scan{info: info, root: root, roles: map[*ast.FuncLit]role{},
		literals: map[types.Object]*ast.FuncLit{}, params: map[types.Object]bool{}}
	ast.Inspect(root, func(n ast.Node) bool {
		s.define(n)
		return true
	})
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			s.call(n)
		case *ast.GoStmt:
			s.assign(n.Call.Fun, roleGoroutine)
		}
		return true
	})
	s.shareRoles()
	return s
}

// define records parameters, and variables that are defined as a function literal.
func (s *scan) define(n ast.Node) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		s.addParams(n.Recv)
	case *ast.FuncType:
		s.addParams(n.Params)
		s.addParams(n.Results)
	case *ast.AssignStmt:
		if len(n.Lhs) == len(n.Rhs) {
			for i, left := range n.Lhs {
				s.defineLiteral(left, n.Rhs[i])
			}
		}
	case *ast.ValueSpec:
		if len(n.Names) == len(n.Values) {
			for i, name := range n.Names {
				s.defineLiteral(name, n.Values[i])
			}
		}
	}
}

func (s *scan) addParams(fields *ast.FieldList) {
	if fields == nil {
		return
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			s.params[s.info.Defs[name]] = true
		}
	}
}

func (s *scan) defineLiteral(left, right ast.Expr) {
	name, ok := left.(*ast.Ident)
	if !ok {
		return
	}
	if literal, ok := ast.Unparen(right).(*ast.FuncLit); ok {
		s.literals[s.info.ObjectOf(name)] = literal
	}
}

// literal returns the function literal that e is, or that the variable e contains, or nil.
func (s *scan) literal(e ast.Expr) *ast.FuncLit {
	switch e := ast.Unparen(e).(type) {
	case *ast.FuncLit:
		return e
	case *ast.Ident:
		return s.literals[s.info.ObjectOf(e)]
	default:
		return nil
	}
}

// assign sets the role of a function literal. The literals in an expression that returns a function
// may run in this role, or immediately.
func (s *scan) assign(e ast.Expr, r role) {
	if literal := s.literal(e); literal != nil {
		s.roles[literal] = r
		return
	}
	ast.Inspect(e, func(n ast.Node) bool {
		if inner, ok := n.(ast.Expr); ok {
			if literal := s.literal(inner); literal != nil {
				s.roles[literal] = roleUnknown
				return false
			}
		}
		return true
	})
}

// call finds the roles of the function literals that are passed to a call.
func (s *scan) call(call *ast.CallExpr) {
	callee := typeutil.Callee(s.info, call)
	roles := map[int]role{} // by argument
	switch {
	case isObject(callee, durablePath, "Step", "Run"):
		roles[2] = roleStep
	case isObject(callee, durablePath, "Tx", "RunTx"):
		roles[3] = roleStep
	case isObject(callee, durablePath, "Undo"):
		roles[0] = roleUndo
	case isObject(callee, durablePath, "UndoTx"):
		roles[1] = roleUndo
	case isObject(callee, durablePath, "Accept"):
		roles[0] = roleAccept
	case isObject(callee, durablePath, "Each"):
		roles[3] = roleBranch
	case isObject(callee, "sync", "Go"), isObject(callee, "golang.org/x/sync/errgroup", "Go", "TryGo"):
		roles[0] = roleGoroutine
	case isObject(callee, "time", "AfterFunc"):
		roles[1] = roleGoroutine
	default:
		if !s.passesCtx(call) {
			return
		}
		for i := range call.Args { // the helper that gets the Ctx may run it in a step
			roles[i] = roleUnknown
		}
	}
	for i, r := range roles {
		if i < len(call.Args) {
			s.assign(call.Args[i], r)
		}
	}
}

// passesCtx reports whether an argument of a call is a durable.Ctx.
func (s *scan) passesCtx(call *ast.CallExpr) bool { return s.ctxOf(call) != nil }

// ctxOf returns the first argument of a call that is a durable.Ctx, or nil.
func (s *scan) ctxOf(call *ast.CallExpr) ast.Expr {
	for _, arg := range call.Args {
		if isCtx(s.info.TypeOf(arg)) {
			return arg
		}
	}
	return nil
}

// shareRoles sets the role of some remaining literals to roleUnknown. Literals that take a
// context.Context probably run in a step. Literals that are used in a literal outside the function,
// such as the body of a step, probably run there.
func (s *scan) shareRoles() {
	ast.Inspect(s.root, func(n ast.Node) bool {
		literal, ok := n.(*ast.FuncLit)
		if !ok || takesCtx(s.info, literal.Type) {
			return true
		}
		if _, known := s.roles[literal]; !known && takesContext(s.info, literal.Type) {
			s.roles[literal] = roleUnknown
		}
		return true
	})
	for changed := true; changed; {
		changed = false
		ast.Inspect(s.root, func(n ast.Node) bool {
			literal, ok := n.(*ast.FuncLit)
			if !ok || s.roles[literal] == roleFunction || s.roles[literal] == roleBranch {
				return true
			}
			ast.Inspect(literal.Body, func(n ast.Node) bool {
				name, ok := n.(*ast.Ident)
				if !ok {
					return true
				}
				used := s.literals[s.info.Uses[name]]
				if used == nil || takesCtx(s.info, used.Type) {
					return true
				}
				if _, known := s.roles[used]; !known {
					s.roles[used], changed = roleUnknown, true
				}
				return true
			})
			return true
		})
	}
}

func takesContext(info *types.Info, f *ast.FuncType) bool {
	for _, p := range f.Params.List {
		if isNamed(info.TypeOf(p.Type), "context", "Context") {
			return true
		}
	}
	return false
}

// contains reports whether a position is in a node.
func contains(n ast.Node, pos token.Pos) bool { return n.Pos() <= pos && pos < n.End() }
