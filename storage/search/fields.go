package search

import (
	"slices"
	"strings"
)

// table is what a filter is about.
type table struct {
	fields  []*field
	example string // a comparison, for errors
	text    string // the beginning of one with a text
}

// field is what a filter may name, and how SQL compares it. Each condition is true or false, never NULL: a field that is not there equals
// nothing, so that != and NOT hold for it.
type field struct {
	name    string
	values  valueKind         // what it is compared with
	compare map[string]string // the condition of each operator; that of != follows from =
	prefix  string            // that it begins with a text; "": it takes no *
	there   string            // that it is there; "": nobody asks
	doc     *document         // where it is JSON, of which a filter names a key; else nil
	choices *choices          // of isChoice
}

// choices are the names that a field has, which may stand behind a prefix.
type choices struct {
	names  []string
	prefix string
	field  func(name string) *field // that compares a name; nil: the field itself
}

// document is how SQL compares what stands at a key of a JSON column. The value may be of any type.
type document struct {
	there          string
	contains       string // in the form without coalesce the index of metadata serves
	containsOrNot  string
	containsEither string
	numbers, texts map[string]string // by operator; CASE keeps a value of another type from the cast, which would fail
}

func documentOf(column string) *document {
	of := func(condition string) string { return strings.ReplaceAll(condition, "COLUMN", column) }
	return &document{
		there: of("(COLUMN #> $?::text[]) IS NOT NULL"), contains: of("COLUMN @> $?::jsonb"), containsOrNot: of("coalesce(COLUMN @> $?::jsonb, false)"),
		containsEither: of("coalesce(COLUMN @> $?::jsonb OR COLUMN @> $?::jsonb, false)"),
		numbers:        inOrder(of("CASE WHEN jsonb_typeof(COLUMN #> $?::text[]) = 'number' THEN (COLUMN #> $?::text[])::numeric "), " $?::text::numeric ELSE false END"),
		texts:          inOrder(of("CASE WHEN jsonb_typeof(COLUMN #> $?::text[]) = 'string' THEN (COLUMN #>> $?::text[]) COLLATE \"C\" "), " $?::text ELSE false END"),
	}
}

// documentField is a field that is JSON.
func documentField(name, column string) *field {
	doc := documentOf(column)
	return &field{name: name, compare: doc.texts, there: column + " IS NOT NULL", doc: doc}
}

// The fields of processes, of a row p.
var (
	fieldStatus    = &field{name: "status", values: isStatus, compare: map[string]string{equals: "p.status = $?::text::process_status"}}
	fieldProcessID = &field{name: "process_id", compare: inOrder("p.process_id", "$?::text"), prefix: "starts_with(p.process_id, $?::text)"}
	fieldKind      = &field{name: "kind", compare: map[string]string{equals: "p.kind = $?::text"}}
	fieldCreated   = &field{name: "created_time", values: isTime, compare: inOrder("p.created_time", "$?::timestamptz")}
	// A time of status_changed_time is one of attention_time too, where that is set; see bounds.
	fieldStatusChanged = &field{name: "status_changed_time", values: isTime, compare: inOrder("p.status_changed_time", "$?::timestamptz")}
	fieldDetail        = &field{
		name:    "detail",
		compare: map[string]string{equals: "coalesce(p.detail = $?::text, false)", has: "coalesce(strpos(p.detail, $?::text) > 0, false)"},
		prefix:  "coalesce(starts_with(p.detail, $?::text), false)", there: "p.detail IS NOT NULL",
	}
	fieldCorruptedBy = &field{
		name: "corrupted_by", values: isInteger, compare: inOrder("coalesce(p.corrupted_by", "$?::bigint, false)"), there: "p.corrupted_by IS NOT NULL",
	}
	fieldMetadata = documentField("metadata", "p.metadata")
)

var processes = &table{
	fields:  []*field{fieldStatus, fieldProcessID, fieldKind, fieldCreated, fieldStatusChanged, fieldDetail, fieldCorruptedBy, fieldMetadata},
	example: "status = ERROR", text: "detail:",
}

func inOrder(left, right string) map[string]string {
	list := map[string]string{}
	for _, operator := range []string{equals, less, lessEqual, more, moreEqual} {
		list[operator] = left + " " + operator + " " + right
	}
	return list
}

// field finds a field; nil: there is none of this name.
func (t *table) field(name string) *field {
	if n := slices.IndexFunc(t.fields, func(f *field) bool { return f.name == name }); n >= 0 {
		return t.fields[n]
	}
	return nil
}

// documents names the fields that are JSON.
func (t *table) documents() string {
	var names []string
	for _, f := range t.fields {
		if f.doc != nil {
			names = append(names, f.name)
		}
	}
	return strings.Join(names, " or ")
}

// names lists fields in an error.
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

// operators are those that a field takes.
func (f *field) operators() []string {
	return slices.DeleteFunc([]string{equals, differs, less, lessEqual, more, moreEqual, has}, func(operator string) bool {
		return f.compare[operator] == "" && operator != differs && (operator != has || f.there == "")
	})
}
