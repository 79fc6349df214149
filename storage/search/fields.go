package search

import (
	"slices"
	"strings"

	"github.com/progressor-engine/progressor/process"
)

// table describes what a filter applies to.
type table struct {
	fields  []*field
	example string // a comparison, for errors
	text    string // the beginning of a comparison with a text, for errors
}

// field is a field of a filter, and how SQL compares it. Each condition is true or false, never
// NULL. A field that is not set equals nothing, so != and NOT match it.
type field struct {
	name    string
	values  valueKind         // what it is compared with
	compare map[string]string // the condition of each operator; that of != is derived from =
	prefix  string            // condition for a prefix; "" if it takes no *
	there   string            // condition that it is set; "" if filters cannot check this
	doc     *document         // set for a JSON field; a filter names one of its keys
	choices *choices          // set for isChoice
}

// choices are the names that a field can have, optionally with a prefix.
type choices struct {
	names  []string
	prefix string
	field  func(name string) *field // the field that compares a name; nil for the field itself
}

// document is how SQL compares the value at a key of a JSON column. The value may have any type.
type document struct {
	there          string
	contains       string // without coalesce, so that the index of metadata can be used
	containsOrNot  string
	containsEither string
	// numbers and texts contain the condition of each operator. CASE prevents a cast of other
	// types, which would fail.
	numbers, texts map[string]string
}

func documentOf(column string) *document {
	of := func(condition string) string { return strings.ReplaceAll(condition, "COLUMN", column) }
	return &document{
		there: of("(COLUMN #> $?::text[]) IS NOT NULL"), contains: of("COLUMN @> $?::jsonb"),
		containsOrNot:  of("coalesce(COLUMN @> $?::jsonb, false)"),
		containsEither: of("coalesce(COLUMN @> $?::jsonb OR COLUMN @> $?::jsonb, false)"),
		numbers: inOrder(of(`CASE WHEN jsonb_typeof(COLUMN #> $?::text[]) = 'number' THEN
			(COLUMN #> $?::text[])::numeric `), " $?::text::numeric ELSE false END"),
		texts: inOrder(of("CASE WHEN jsonb_typeof(COLUMN #> $?::text[]) = 'string' THEN (COLUMN #>> $?::text[]) "+
			"COLLATE \"C\" "), " $?::text ELSE false END"),
	}
}

// documentField returns a JSON field.
func documentField(name, column string) *field {
	doc := documentOf(column)
	return &field{name: name, compare: doc.texts, there: column + " IS NOT NULL", doc: doc}
}

// textField returns a field with a text that a prefix can select.
func textField(name, column string) *field {
	return &field{
		name: name, compare: map[string]string{equals: column + " = $?::text"},
		prefix: "starts_with(" + column + ", $?::text)",
	}
}

// The fields of processes, of a row p.
var (
	fieldStatus = &field{
		name: "status", values: isStatus, compare: map[string]string{equals: "p.status = $?::text::process_status"},
	}
	fieldProcessID = &field{
		name: "process_id", compare: inOrder("p.process_id", "$?::text"), prefix: "starts_with(p.process_id, $?::text)",
	}
	fieldKind    = &field{name: "kind", compare: map[string]string{equals: "p.kind = $?::text"}}
	fieldCreated = &field{name: "created_time", values: isTime, compare: inOrder("p.created_time", "$?::timestamptz")}
	// If attention_time is set, it equals status_changed_time, see bounds.
	fieldStatusChanged = &field{
		name: "status_changed_time", values: isTime, compare: inOrder("p.status_changed_time", "$?::timestamptz"),
	}
	fieldDetail = &field{
		name: "detail",
		compare: map[string]string{
			equals: "coalesce(p.detail = $?::text, false)", has: "coalesce(strpos(p.detail, $?::text) > 0, false)",
		},
		prefix: "coalesce(starts_with(p.detail, $?::text), false)", there: "p.detail IS NOT NULL",
	}
	fieldCorruptedBy = &field{
		name: "corrupted_by", values: isInteger, compare: inOrder("coalesce(p.corrupted_by", "$?::bigint, false)"),
		there: "p.corrupted_by IS NOT NULL",
	}
	fieldMetadata    = documentField("metadata", "p.metadata")
	fieldReason      = errorField("reason", ofError(`t.failure->>'reason'`, "NULL", "true"))
	fieldFingerprint = errorField("fingerprint", ofError(taskFingerprint, importedFingerprint, notOfStep))
)

const (
	taskFingerprint     = `error_fingerprint(t.failure->>'reason', t.failure->>'message')`
	importedFingerprint = `error_fingerprint(NULL, p.detail)`
	// Jobs of steps have no fingerprint here, because their run has the same error.
	notOfStep = `NOT starts_with(p.process_id, '` + process.StepPrefix + `')`
)

// ofError returns the SQL expression for a value of the task that put a process into ERROR, or for
// another value if the process was imported in ERROR. The expression is NULL if the process is not
// in ERROR or the condition is false.
func ofError(ofTask, imported, condition string) string {
	return `(CASE WHEN p.attention = 'ERROR' AND ` + condition + ` THEN
  CASE p.corrupted_by WHEN 0 THEN ` + imported + ` ELSE (SELECT ` + ofTask + ` FROM tasks t
    WHERE t.namespace = p.namespace AND t.process_id = p.process_id AND t.task_id = p.corrupted_by LIMIT 1) END END)`
}

// errorField returns a field with a text that is set if there is an error.
func errorField(name, column string) *field {
	return &field{
		name: name, compare: map[string]string{equals: "coalesce(" + column + " = $?::text, false)"},
		prefix: "coalesce(starts_with(" + column + ", $?::text), false)", there: column + " IS NOT NULL",
	}
}

var processes = &table{
	fields: []*field{
		fieldStatus, fieldProcessID, fieldKind, fieldCreated, fieldStatusChanged, fieldDetail, fieldCorruptedBy,
		fieldReason, fieldFingerprint, fieldMetadata,
	},
	example: "status = ERROR", text: "detail:",
}

func inOrder(left, right string) map[string]string {
	list := map[string]string{}
	for _, operator := range []string{equals, less, lessEqual, more, moreEqual} {
		list[operator] = left + " " + operator + " " + right
	}
	return list
}

// field returns the field with the given name, or nil if there is none.
func (t *table) field(name string) *field {
	if n := slices.IndexFunc(t.fields, func(f *field) bool { return f.name == name }); n >= 0 {
		return t.fields[n]
	}
	return nil
}

// documents returns the names of the JSON fields.
func (t *table) documents() string {
	var names []string
	for _, f := range t.fields {
		if f.doc != nil {
			names = append(names, f.name)
		}
	}
	return strings.Join(names, " or ")
}

// names returns a list of fields for errors.
func (t *table) names(which func(*field) bool) string {
	var names []string
	for _, f := range t.fields {
		switch {
		case !which(f):
		case f.doc != nil:
			names = append(names, f.name+".KEY")
		default:
			names = append(names, f.name)
		}
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// operators returns the operators that a field takes.
func (f *field) operators() []string {
	return slices.DeleteFunc([]string{equals, differs, less, lessEqual, more, moreEqual, has},
		func(operator string) bool {
			return f.compare[operator] == "" && operator != differs && (operator != has || f.there == "")
		})
}
