package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// goSource is a parsed Go file and its violations.
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
	if !source.isTest() {
		source.structFields()
		source.kindsInRoots()
		source.clocks()
	}
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

func (s *goSource) structFields() {
	ast.Inspect(s.file, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok {
			return true
		}
		structType, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		name, n := spec.Name.Name, structType.Fields.NumFields()
		switch allowed, excepted := manyFields[path.Dir(s.name)+"."+name]; {
		case n > maxFields && !excepted:
			s.report(spec.Pos(), "struct %s has %d fields, at most %d: split it by subject", name, n, maxFields)
		case excepted && n > allowed:
			s.report(spec.Pos(), "struct %s has %d fields, and had %d", name, n, allowed)
		case excepted && n < allowed:
			s.report(spec.Pos(), "struct %s has only %d fields: lower its number in manyFields", name, n)
		}
		return true
	})
}

// kindsInRoots reports identifiers of the roots of engine and storage that name a kind.
func (s *goSource) kindsInRoots() {
	root := path.Dir(s.name)
	if root != "engine" && root != "storage" {
		return
	}
	ast.Inspect(s.file, func(node ast.Node) bool {
		if identifier, ok := node.(*ast.Ident); ok {
			if word := kindWord(identifier.Name); word != "" {
				s.report(identifier.Pos(), "%s: package %s must not know the kind %q: use a hook of engine.Kind, "+
					"or move it to a subpackage", identifier.Name, root, word)
			}
		}
		return true
	})
}

// clocks reports functions of package time that use the clock, in a pure package.
func (s *goSource) clocks() {
	timeName, pkg := s.importName("time"), path.Dir(s.name)
	if timeName == "" || !slices.Contains(purePackages, pkg) {
		return
	}
	ast.Inspect(s.file, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok && slices.Contains(clock, selector.Sel.Name) {
			if name, ok := selector.X.(*ast.Ident); ok && name.Name == timeName {
				s.report(selector.Pos(), "time.%s: package %s is pure: pass the time", selector.Sel.Name, pkg)
			}
		}
		return true
	})
}

// sleeps reports calls of time.Sleep, except inside synctest.Test, which has a fake clock.
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
			s.report(call.Pos(), "time.Sleep in a test: wait for a condition, or use testing/synctest")
		}
		return true
	})
}

// sqlStart matches the beginning of a statement that can have parameters. Other statements, such as
// CREATE DATABASE, may be built from strings.
var sqlStart = regexp.MustCompile(`^\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|MERGE|EXPLAIN|COPY|CALL|VALUES)\s`)

// builtSQL reports SQL that is built from strings, with the Sprintf family or with + and the result
// of a call.
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
						s.report(node.Pos(), "fmt.%s of SQL: use parameters, and put the statement in sql/", name)
					}
				}
			}
		case *ast.BinaryExpr:
			_, leftCall := node.X.(*ast.CallExpr)
			_, rightCall := node.Y.(*ast.CallExpr)
			if node.Op == token.ADD && (leftCall && isSQL(node.Y) || rightCall && isSQL(node.X)) {
				s.report(node.Pos(), "SQL by +: use parameters, and put the statement in sql/")
			}
		}
		return true
	})
}

// isSQL reports whether expr is a string literal with SQL, or a sum that begins with one.
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

// isCall reports whether call calls the function of an imported package, by any name of the import.
func (s *goSource) isCall(call *ast.CallExpr, importPath, function string) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != function {
		return false
	}
	name, ok := selector.X.(*ast.Ident)
	return ok && name.Name == s.importName(importPath)
}

// importName returns the name of a package in this file, or "" if the file does not import it.
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
