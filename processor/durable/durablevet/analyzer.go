package durablevet

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
)

const durablePath = "github.com/progressor-engine/progressor/processor/durable"

const doc = `find mistakes in durable functions

A durable function is run again by each task of its process, and gets the recorded values of its
operations. This analyzer reads each function and function literal with a parameter of type
durable.Ctx, and reports

 - operations in another goroutine, or in the body of a step, an undo or Accept
 - operations with the Ctx of another branch
 - the clock, random numbers, channels and locks outside the bodies of steps
 - operations in a loop over a map, whose order differs from run to run
 - variables of the function that the body of a step or a branch of Each assigns`

// Analyzer finds mistakes in durable functions. It is safe for concurrent use.
var Analyzer = &analysis.Analyzer{
	Name: "durable",
	Doc:  doc,
	URL:  "https://pkg.go.dev/" + durablePath + "/durablevet",
	Run:  run,
}

func run(pass *analysis.Pass) (any, error) {
	if !slices.ContainsFunc(pass.Pkg.Imports(), func(p *types.Package) bool { return p.Path() == durablePath }) {
		return nil, nil // the package durable itself does not import it, either
	}
	for _, file := range pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			signature, body := function(n)
			if body == nil || !takesCtx(pass.TypesInfo, signature) {
				return true
			}
			w := &walker{pass: pass, scan: scanFunction(pass.TypesInfo, n), function: n}
			w.walk(body)
			return false
		})
	}
	return nil, nil
}

// function returns the signature and the body of a function or function literal.
func function(n ast.Node) (*ast.FuncType, *ast.BlockStmt) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return n.Type, n.Body
	case *ast.FuncLit:
		return n.Type, n.Body
	default:
		return nil, nil
	}
}

// takesCtx reports whether a function has a parameter of type durable.Ctx.
func takesCtx(info *types.Info, f *ast.FuncType) bool {
	return slices.ContainsFunc(f.Params.List, func(p *ast.Field) bool { return isCtx(info.TypeOf(p.Type)) })
}

func isCtx(t types.Type) bool { return isNamed(t, durablePath, "Ctx") }

// isNamed reports whether t is the type with this name, an instance of it, or a pointer to it.
func isNamed(t types.Type, path string, names ...string) bool {
	if t == nil {
		return false
	}
	t = types.Unalias(t)
	if pointer, ok := t.(*types.Pointer); ok {
		t = types.Unalias(pointer.Elem())
	}
	named, ok := t.(*types.Named)
	return ok && isObject(named.Obj(), path, names...)
}

// isObject reports whether o has one of these names in the package with this path.
func isObject(o types.Object, path string, names ...string) bool {
	return o != nil && o.Pkg() != nil && o.Pkg().Path() == path && slices.Contains(names, o.Name())
}
