package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// feature is a feature of PostgreSQL that distributed databases with the same protocol do not
// support, or support only at a high cost.
type feature string

const (
	rowVersions    feature = "xmin and xmax"
	rowAddresses   feature = "ctid"
	transactionIDs feature = "transaction IDs and snapshots"
	advisoryLocks  feature = "advisory locks"
	notifications  feature = "LISTEN and NOTIFY"
)

// featureNames contains the names of columns, functions and types that belong to a feature. The
// schema of this repository defines no such names.
var featureNames = []struct {
	feature feature
	names   *regexp.Regexp
}{
	{rowVersions, regexp.MustCompile(`^([cx]min|[cx]max)$`)},
	{rowAddresses, regexp.MustCompile(`^ctid$`)},
	{transactionIDs, regexp.MustCompile(
		`^(pg_current_xact_id\w*|pg_(current_)?snapshot\w*|pg_visible_in_snapshot|pg_xact_\w+|txid_\w+|xid8)$`)},
	{advisoryLocks, regexp.MustCompile(`^pg_(try_)?advisory_\w+$`)},
	{notifications, regexp.MustCompile(`^pg_notify$`)},
}

// statementFeatures contains the first words of statements that belong to a feature. Only the first
// word counts, because elsewhere in a statement such a word may be an ordinary name.
var statementFeatures = map[string]feature{
	"listen": notifications, "unlisten": notifications, "notify": notifications,
}

// featuresOf returns the features that a statement uses.
func featuresOf(tokens []string) map[feature]bool {
	found := map[feature]bool{}
	if len(tokens) > 0 {
		if feature, ok := statementFeatures[tokens[0]]; ok {
			found[feature] = true
		}
	}
	for _, token := range tokens {
		for _, f := range featureNames {
			if f.names.MatchString(token) {
				found[f.feature] = true
			}
		}
	}
	return found
}

// used maps the names of statements to the features that they use.
type used map[string]map[feature]bool

func (u used) add(name string, tokens []string) {
	found := featuresOf(tokens)
	if len(found) == 0 {
		return
	}
	if u[name] == nil {
		u[name] = map[feature]bool{}
	}
	maps.Copy(u[name], found)
}

// sqlcName is the comment that names a statement for sqlc.
var sqlcName = regexp.MustCompile(`(?m)^-- name: (\w+) :\w+\n`)

// addQueries adds the named statements of a file in sql/.
func (u used) addQueries(content string) {
	names := sqlcName.FindAllStringSubmatchIndex(content, -1)
	for n, at := range names {
		end := len(content)
		if n+1 < len(names) {
			end = names[n+1][0]
		}
		u.add(content[at[2]:at[3]], sqlTokens(content[at[1]:end]))
	}
}

// addMigration adds the statements of a migration. The name of a statement is the object that it
// creates, or else the name of the migration. A later definition of a function, procedure or view
// replaces an earlier one, so migrations must be added in order.
func (u used) addMigration(name, content string) {
	up, _, _ := strings.Cut(content, "-- +goose Down")
	for _, tokens := range sqlStatements(up) {
		object := createdObject(tokens)
		switch {
		case object == "":
			object = name
		case !strings.HasPrefix(object, "table "):
			delete(u, object)
		}
		u.add(object, tokens)
	}
}

// createdObject returns the kind and the name of the object that a statement creates, such as
// "function enqueue", or "". For a DO block, it is the first object that the body creates.
func createdObject(tokens []string) string {
	for n, token := range tokens {
		if token != "create" {
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(tokens[n+1:min(n+6, len(tokens))]), func(token string) bool {
			return slices.Contains([]string{"or", "replace", "if", "not", "exists", "unlogged"}, token)
		})
		if len(rest) > 1 && slices.Contains([]string{"function", "procedure", "view", "table"}, rest[0]) {
			return rest[0] + " " + rest[1]
		}
	}
	return ""
}

// sqlFragment matches a Go string that contains a SQL statement or a part of one.
var sqlFragment = regexp.MustCompile(`(^|\s)(SELECT|FROM|WHERE|AND|JOIN|UPDATE|DELETE|INSERT|LISTEN|NOTIFY)\s`)

// addGo adds the SQL in the strings of a Go file, named by the file and the declaration.
func (u used) addGo(name string, content []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, decl := range file.Decls {
		if function, ok := decl.(*ast.FuncDecl); ok {
			u.addStrings(name+" "+function.Name.Name, function)
		}
		if general, ok := decl.(*ast.GenDecl); ok {
			for _, spec := range general.Specs {
				if value, ok := spec.(*ast.ValueSpec); ok {
					u.addStrings(name+" "+value.Names[0].Name, value)
				}
			}
		}
	}
	return nil
}

func (u used) addStrings(declaration string, node ast.Node) {
	ast.Inspect(node, func(node ast.Node) bool {
		literal, ok := node.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		if text, err := strconv.Unquote(literal.Value); err == nil && sqlFragment.MatchString(text) {
			u.add(declaration, sqlTokens(text))
		}
		return true
	})
}

// otherPrefixes contains the path prefixes of Go files that are not part of the engine.
var otherPrefixes = []string{"internal/", "storage/storagetest/", "engine/enginetest/", "examples/"}

// sendsSQL reports whether a Go file is part of the engine. The SQL of such files must be portable.
func sendsSQL(name string, content []byte) bool {
	other := slices.ContainsFunc(otherPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	return path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") && !other && !generatedHeader.Match(content)
}

// usedFeatures returns the features that the statements of the repository use.
func usedFeatures(root string) (used, error) {
	found := used{}
	return found, walk(root, found.addFile) // walk visits files in the order of their names
}

// addFile adds the statements of a file.
func (u used) addFile(name string, content []byte) error {
	switch {
	case strings.HasPrefix(name, "sql/"):
		u.addQueries(string(content))
	case strings.HasPrefix(name, "migrations/") && path.Ext(name) == ".sql":
		u.addMigration(name, string(content))
	case sendsSQL(name, content):
		return u.addGo(name, content)
	}
	return nil
}

// exception allows some statements to use a feature, for a reason.
type exception struct {
	feature    feature
	reason     string
	statements []string
}

// portability returns one line for each use of a feature without an exception, and for each unused
// exception.
func portability(found used, exceptions []exception) []string {
	var violations []string
	allowed := used{}
	for _, e := range exceptions {
		for _, statement := range e.statements {
			if !found[statement][e.feature] {
				violations = append(violations, fmt.Sprintf("%s does not use %s: remove it from exceptions",
					statement, e.feature))
			}
			if allowed[statement] == nil {
				allowed[statement] = map[feature]bool{}
			}
			allowed[statement][e.feature] = true
		}
	}
	for _, statement := range slices.Sorted(maps.Keys(found)) {
		for _, feature := range slices.Sorted(maps.Keys(found[statement])) {
			if !allowed[statement][feature] {
				violations = append(violations, fmt.Sprintf("%s uses %s: use only features that distributed "+
					"databases support, see docs/scale-out.md", statement, feature))
			}
		}
	}
	return violations
}
