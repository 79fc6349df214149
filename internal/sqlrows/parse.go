package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// statement is a statement that takes lists of rows.
type statement struct {
	name  string
	lists []list
}

// list is a list of rows that a statement takes as one array per column.
type list struct {
	alias   string
	columns []column
}

// column is a column of a list.
type column struct {
	name  string // in SQL
	array string // field of the parameters
	typ   string // Go type of a value
}

// statements returns the statements with lists in a file that sqlc has generated.
func statements(code []byte) ([]statement, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", code, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	queries, params := map[string]string{}, map[string][]column{}
	var names []string
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range decl.Specs {
			switch spec := s.(type) {
			case *ast.ValueSpec:
				name, sql := query(spec)
				names, queries[name] = append(names, name), sql
			case *ast.TypeSpec:
				if of, ok := strings.CutSuffix(spec.Name.Name, "Params"); ok {
					params[of] = fields(spec, code)
				}
			}
		}
	}
	var all []statement
	for _, name := range names {
		lists, err := listsOf(queries[name], params[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(lists) > 0 {
			all = append(all, statement{name, lists})
		}
	}
	return all, nil
}

// query returns the name and the text of a statement.
func query(spec *ast.ValueSpec) (name, sql string) {
	if len(spec.Values) != 1 {
		return "", ""
	}
	value, ok := spec.Values[0].(*ast.BasicLit)
	if !ok {
		return "", ""
	}
	text, ok := strings.CutPrefix(value.Value, "`-- name: ")
	if !ok {
		return "", ""
	}
	name, sql, _ = strings.Cut(text, " ")
	return name, sql
}

// fields returns the fields of a struct of parameters. The field with index n has the value of
// parameter n+1. The type of a field that is not an array is "".
func fields(spec *ast.TypeSpec, code []byte) (all []column) {
	s, ok := spec.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	for _, f := range s.Fields.List {
		typ, isArray := strings.CutPrefix(string(code[f.Type.Pos()-1:f.Type.End()-1]), "[]")
		if !isArray || typ == "byte" {
			typ = ""
		}
		for _, name := range f.Names {
			all = append(all, column{array: name.Name, typ: typ})
		}
	}
	return all
}

var (
	// rowsFrom matches ROWS FROM (unnest($1::text[]), …) AS item(namespace, …).
	rowsFrom = regexp.MustCompile(`ROWS\s+FROM\s+\(\s*((?:unnest\(\$\d+::\w+\[\]\)[,\s]*)+)\)` +
		`\s*(?:WITH\s+ORDINALITY\s+)?AS\s+(\w+)\(([\w\s,]+)\)`)
	// selected matches item AS (SELECT unnest($1::text[]) AS namespace, …) and
	// (SELECT unnest($1::text[]) AS namespace, …) AS item.
	selected = regexp.MustCompile(`(?:(\w+)\s+AS\s+(?:MATERIALIZED\s+)?)?` +
		`\(\s*SELECT\s+((?:unnest\(\$\d+::\w+\[\]\)\s+AS\s+\w+[,\s]*)+)\)(?:\s*(?:AS\s+)?(\w+))?`)
	parameter = regexp.MustCompile(`unnest\(\$(\d+)::\w+\[\]\)(?:\s+AS\s+(\w+))?`)
	word      = regexp.MustCompile(`\w+`)
)

// listsOf returns the lists of at least two arrays in the text of a statement. A list whose arrays
// are all in another one is omitted.
func listsOf(sql string, params []column) ([]list, error) {
	var lists []list
	add := func(alias string, columns []column) {
		if len(columns) < 2 || slices.ContainsFunc(lists, func(l list) bool { return contains(l, columns) }) {
			return
		}
		lists = slices.DeleteFunc(lists, func(l list) bool { return contains(list{columns: columns}, l.columns) })
		lists = append(lists, list{alias, columns})
	}
	for _, m := range rowsFrom.FindAllStringSubmatch(sql, -1) {
		columns, err := columnsOf(m[1], word.FindAllString(m[3], -1), params)
		if err != nil {
			return nil, err
		}
		add(m[2], columns)
	}
	for _, m := range selected.FindAllStringSubmatch(sql, -1) {
		columns, err := columnsOf(m[2], nil, params)
		if err != nil {
			return nil, err
		}
		alias := m[1]
		if alias == "" {
			alias = m[3]
		}
		add(alias, columns)
	}
	return lists, nil
}

func contains(l list, columns []column) bool {
	return !slices.ContainsFunc(columns, func(c column) bool {
		return !slices.ContainsFunc(l.columns, func(other column) bool { return other.array == c.array })
	})
}

// columnsOf returns the columns of the arrays in unnests. names are the names of the columns, or
// nil if unnests contains them.
func columnsOf(unnests string, names []string, params []column) ([]column, error) {
	var columns []column
	for n, m := range parameter.FindAllStringSubmatch(unnests, -1) {
		number, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, err
		}
		if len(params) == 0 { // sqlc passes a single parameter without a struct
			return nil, nil
		}
		if number > len(params) || params[number-1].typ == "" {
			return nil, fmt.Errorf("parameter %d is not an array", number)
		}
		c := params[number-1]
		if c.name = m[2]; names != nil {
			if n >= len(names) {
				return nil, fmt.Errorf("parameter %d has no column", number)
			}
			c.name = names[n]
		}
		columns = append(columns, c)
	}
	return columns, nil
}
