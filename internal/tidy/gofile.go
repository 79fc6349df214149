package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// goSource is one parsed Go file, and what it breaks.
type goSource struct {
	name       string
	files      *token.FileSet
	file       *ast.File
	violations []string
}

func goFile(name string, content []byte) ([]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, content, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	source := &goSource{name: name, files: files, file: file}
	source.functionLength()
	source.typeNames()
	source.builtSQL()
	if source.isTest() {
		source.sleeps()
	}
	return source.violations, nil
}

func (s *goSource) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

func (s *goSource) line(pos token.Pos) int { return s.files.Position(pos).Line }

func (s *goSource) report(pos token.Pos, format string, args ...any) {
	s.violations = append(s.violations, fmt.Sprintf("%s:%d: %s", s.name, s.line(pos), fmt.Sprintf(format, args...)))
}

func (s *goSource) functionLength() {
	limit := maxFunctionLines
	if s.isTest() {
		limit = maxTestFunctionLines
	}
	for _, decl := range s.file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if lines := s.line(function.End()) - s.line(function.Pos()) + 1; lines > limit {
			s.report(function.Pos(), "func %s has %d lines, at most %d", function.Name.Name, lines, limit)
		}
	}
}

func (s *goSource) typeNames() {
	ast.Inspect(s.file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.TypeSpec); ok {
			if word := emptyWord(spec.Name.Name); word != "" {
				s.report(spec.Pos(), "type %s: %q says nothing: name what it is", spec.Name.Name, word)
			}
		}
		return true
	})
}

// sleeps finds time.Sleep. Inside synctest.Test the clock is a fake one, and a sleep takes no time.
func (s *goSource) sleeps() {
	ast.Inspect(s.file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		if s.isCall(call, "testing/synctest", "Test") {
			return false
		}
		if s.isCall(call, "time", "Sleep") {
			s.report(call.Pos(), "time.Sleep in a test: wait for what you wait for, or use testing/synctest")
		}
		return true
	})
}

// The beginning of a statement that takes parameters. CREATE DATABASE and the like take none, and may be built.
var sqlStart = regexp.MustCompile(`^\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|MERGE|EXPLAIN|COPY|CALL|VALUES)\s`)

// builtSQL finds SQL that is put together from strings: by the Sprintf family, or by + with the answer of a call.
func (s *goSource) builtSQL() {
	ast.Inspect(s.file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CallExpr:
			for _, name := range []string{"Sprintf", "Fprintf", "Appendf"} {
				if !s.isCall(node, "fmt", name) {
					continue
				}
				for _, arg := range node.Args {
					if isSQL(arg) {
						s.report(node.Pos(), "fmt.%s of SQL: a statement has parameters, and stands in sql/", name)
					}
				}
			}
		case *ast.BinaryExpr:
			_, leftCall := node.X.(*ast.CallExpr)
			_, rightCall := node.Y.(*ast.CallExpr)
			if node.Op == token.ADD && (leftCall && isSQL(node.Y) || rightCall && isSQL(node.X)) {
				s.report(node.Pos(), "SQL by +: a statement has parameters, and stands in sql/")
			}
		}
		return true
	})
}

// isSQL tells of a literal, or of a sum that begins with one.
func isSQL(expr ast.Expr) bool {
	switch expr := expr.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(expr.Value)
		return err == nil && expr.Kind == token.STRING && sqlStart.MatchString(text)
	case *ast.BinaryExpr:
		return isSQL(expr.X)
	case *ast.ParenExpr:
		return isSQL(expr.X)
	}
	return false
}

// isCall tells whether call is of that function of an imported package, under whatever name it was imported.
func (s *goSource) isCall(call *ast.CallExpr, importPath, function string) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != function {
		return false
	}
	name, ok := selector.X.(*ast.Ident)
	return ok && name.Name == s.importName(importPath)
}

// importName is the name under which the file knows a package, "" where it does not import it.
func (s *goSource) importName(importPath string) string {
	for _, spec := range s.file.Imports {
		if spec.Path.Value != strconv.Quote(importPath) {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return importPath[strings.LastIndex(importPath, "/")+1:]
	}
	return ""
}
