package main

import (
	"bytes"

	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// planted is the name of the variable that selects a bug, by its number. It is in each package that
// contains bugs.
const planted = "plantedBug"

// declaration is the declaration of a Go file that a bug changes, before or after it is planted.
type declaration struct {
	index int // the position among the declarations of the file
	ast.Decl
	file *token.File
	src  []byte
}

// changedDeclaration compares a file with the same file with a bug. It reports false if the bug
// cannot be switched on by a variable: it changes more than the body of one function or one
// generated SQL statement, or the function needs to know its caller.
func changedDeclaration(file string, before, after []byte) (was, is declaration, ok bool) {
	if path.Ext(file) != ".go" {
		return was, is, false
	}
	files := token.NewFileSet()
	old, err := parser.ParseFile(files, file, before, parser.SkipObjectResolution)
	if err != nil {
		return was, is, false
	}
	changed, err := parser.ParseFile(files, file, after, parser.SkipObjectResolution)
	if err != nil || len(old.Decls) != len(changed.Decls) {
		return was, is, false
	}
	differ := 0
	for n := range old.Decls {
		a := declaration{n, old.Decls[n], files.File(old.Pos()), before}
		b := declaration{n, changed.Decls[n], files.File(changed.Pos()), after}
		if a.text(a) != b.text(b) {
			was, is = a, b
			differ++
		}
	}
	return was, is, differ == 1 && was.switchable(is)
}

// text returns the source of a node in the declaration.
func (d declaration) text(n ast.Node) string {
	return string(d.src[d.file.Offset(n.Pos()):d.file.Offset(n.End())])
}

func (d declaration) switchable(after declaration) bool {
	switch was := d.Decl.(type) {
	case *ast.FuncDecl:
		is, ok := after.Decl.(*ast.FuncDecl)
		return ok && d.head(was) == after.head(is) && was.Name.Name != "init" && was.Body != nil && is.Body != nil &&
			!strings.Contains(d.text(was.Body), "recover()") && !strings.Contains(d.text(was.Body), "runtime.Caller")
	case *ast.GenDecl:
		is, ok := after.Decl.(*ast.GenDecl)
		return ok && statement(was) != nil && statement(is) != nil && strings.Contains(d.text(was), "`-- name: ")
	}
	return false
}

// head returns the source of a function before its body.
func (d declaration) head(f *ast.FuncDecl) string {
	return string(d.src[d.file.Offset(f.Pos()):d.file.Offset(f.Body.Pos())])
}

// statement returns the specification of a constant that is declared alone, or nil for other
// declarations.
func statement(d *ast.GenDecl) *ast.ValueSpec {
	if d.Tok != token.CONST || len(d.Specs) != 1 {
		return nil
	}
	if spec := d.Specs[0].(*ast.ValueSpec); len(spec.Names) == 1 && len(spec.Values) == 1 {
		return spec
	}
	return nil
}

// renamed returns the source of a function under another name.
func (d declaration) renamed(name string) string {
	f := d.Decl.(*ast.FuncDecl)
	begin := d.file.Offset(f.Pos())
	text := d.text(f)
	return text[:d.file.Offset(f.Name.Pos())-begin] + name + text[d.file.Offset(f.Name.End())-begin:]
}

// switchedFile is a source file that contains the code without a bug and the code of all its bugs.
type switchedFile struct {
	src   []byte
	decls map[int][]switched // by the index of the declaration
}

// switched is one bug of a file.
type switched struct {
	bug     int
	was, is declaration
}

// lines are the lines of a bug in the source of a switchedFile.
type lines struct{ bug, first, last int }

// source returns the code, and the lines of each bug in the code.
func (f *switchedFile) source() (code []byte, where []lines) {
	var out bytes.Buffer
	var at int
	for _, index := range slices.Sorted(maps.Keys(f.decls)) {
		bugs := f.decls[index]
		was := bugs[0].was
		out.Write(f.src[at:was.file.Offset(was.Pos())])
		at = was.file.Offset(was.End())
		if _, ok := was.Decl.(*ast.FuncDecl); ok {
			where = append(where, writeFunction(&out, bugs)...)
		} else {
			writeStatement(&out, bugs)
		}
	}
	out.Write(f.src[at:])
	return out.Bytes(), where
}

// writeStatement declares a variable instead of a constant.
func writeStatement(out *bytes.Buffer, bugs []switched) {
	value := func(d declaration) string { return d.text(statement(d.Decl.(*ast.GenDecl)).Values[0]) }
	was := bugs[0].was
	fmt.Fprintf(out, "var %s = func() string {\n\tswitch %s {\n", statement(was.Decl.(*ast.GenDecl)).Names[0], planted)
	for _, b := range bugs {
		fmt.Fprintf(out, "\tcase %d:\n\t\treturn %s\n", b.bug, value(b.is))
	}
	fmt.Fprintf(out, "\t}\n\treturn %s\n}()\n", value(was))
}

// writeFunction writes a function that calls its version without a bug or one of its versions with
// a bug.
func writeFunction(out *bytes.Buffer, bugs []switched) (where []lines) {
	was := bugs[0].was
	f := was.Decl.(*ast.FuncDecl)
	head, call := was.forward(f)
	fmt.Fprintf(out, "%s {\n\tswitch %s {\n", head, planted)
	for _, b := range bugs {
		fmt.Fprintf(out, "\tcase %d:\n\t\t%s\n", b.bug, call(bugName(f.Name.Name, b.bug)))
		if f.Type.Results == nil {
			fmt.Fprint(out, "\t\treturn\n")
		}
	}
	fmt.Fprintf(out, "\t}\n\t%s\n}\n\n%s\n", call(f.Name.Name+"WithoutBug"), was.renamed(f.Name.Name+"WithoutBug"))
	for _, b := range bugs {
		first := bytes.Count(out.Bytes(), []byte("\n")) + 1
		fmt.Fprintf(out, "\n%s\n", b.is.renamed(bugName(f.Name.Name, b.bug)))
		where = append(where, lines{b.bug, first, bytes.Count(out.Bytes(), []byte("\n")) + 1})
	}
	return where
}

func bugName(function string, bug int) string { return fmt.Sprintf("%sWithBug%d", function, bug) }

// forward returns the head of a function whose parameters all have a name, and a function that
// returns a call of another function with the same parameters.
func (d declaration) forward(f *ast.FuncDecl) (head string, call func(name string) string) {
	var params, args []string
	for _, field := range f.Type.Params.List {
		for range max(1, len(field.Names)) {
			arg := fmt.Sprintf("p%d", len(args))
			params = append(params, arg+" "+d.text(field.Type))
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	receiver, prefix, types, typeArgs, results, returns := "", "", "", "", "", ""
	if f.Recv != nil {
		receiver, prefix = "(r "+d.text(f.Recv.List[0].Type)+") ", "r."
	}
	if list := f.Type.TypeParams; list != nil {
		types = d.text(list)
		var names []string
		for _, field := range list.List {
			for _, name := range field.Names {
				names = append(names, name.Name)
			}
		}
		typeArgs = "[" + strings.Join(names, ", ") + "]"
	}
	if f.Type.Results != nil {
		results, returns = " "+d.text(f.Type.Results), "return "
	}
	head = "func " + receiver + f.Name.Name + types + "(" + strings.Join(params, ", ") + ")" + results
	return head, func(name string) string {
		return returns + prefix + name + typeArgs + "(" + strings.Join(args, ", ") + ")"
	}
}
