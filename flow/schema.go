package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
)

// schema is a compiled JSON Schema of a template.
type schema struct{ compiled *jsonschema.Schema }

const (
	// documentURL is the base URL of the references in a schema.
	documentURL = "https://schema.invalid/document"
	dialect     = "https://json-schema.org/draft/2020-12/schema"
)

// onlyInside rejects references to other documents, so that a template has the same meaning on
// every node and at any time.
type onlyInside struct{}

var errOutside = errors.New("only references inside the document are allowed")

func (onlyInside) Load(string) (any, error) { return nil, errOutside }

// schema compiles a schema. It returns nil if there is none or if it is invalid.
func (c *compiler) schema(path string, s *structpb.Struct) *schema {
	if s == nil || !c.plain(path, structpb.NewStructValue(s), 0) {
		return nil
	}
	if named := s.GetFields()["$schema"].GetStringValue(); named != "" && strings.TrimSuffix(named, "#") != dialect {
		c.add(fieldPath(path, "$schema"), "%.100q is not supported: use %q, or remove it", named, dialect)
		return nil
	}
	if !c.schemas.add(c, path, s) {
		return nil
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(onlyInside{})
	document := s.AsMap()
	err := compiler.AddResource(documentURL, document)
	var compiled *jsonschema.Schema
	if err == nil {
		compiled, err = compiler.Compile(documentURL)
	}
	if err == nil {
		if where, message := tooMuchWork(compiled); message != "" {
			c.add(path, "%s %s", where, message)
			return nil
		}
		return &schema{compiled}
	}
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if violated, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			for _, p := range flatten(path, document, violated) {
				c.add(p.Path, "is not a valid JSON Schema 2020-12: %s", p.Message)
			}
			return nil
		}
	}
	if outside, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		c.add(path, "refers to %s, but %s: move it to $defs and write #/$defs/NAME", outside.URL, errOutside)
		return nil
	}
	c.add(path, "is not a valid JSON Schema 2020-12: %s", strings.ReplaceAll(err.Error(), documentURL, ""))
	return nil
}

// schemaSize adds up the sizes of the schemas of a template. Without limits, compiling 20,000
// patterns in 1.3 MB took 46 s and 1.4 GB.
type schemaSize struct{ bytes, patterns int }

// add adds a schema. It reports a problem and returns false if the schemas of the template are too
// large together.
func (z *schemaSize) add(c *compiler, path string, s *structpb.Struct) bool {
	text, err := json.Marshal(s.AsMap())
	if err != nil {
		c.add(path, "cannot be written as JSON: %s", err)
		return false
	}
	z.bytes += len(text)
	z.patterns += patterns(structpb.NewStructValue(s))
	switch {
	case z.bytes > process.MaxSchemaBytes:
		c.add(path, "makes the schemas of the template larger than %d bytes in total", process.MaxSchemaBytes)
		return false
	case z.patterns > process.MaxPatterns:
		c.add(path, "makes the schemas of the template contain more than %d patterns in total", process.MaxPatterns)
		return false
	}
	return true
}

// patterns returns the number of regular expressions in a schema.
func patterns(v *structpb.Value) (n int) {
	for name, field := range v.GetStructValue().GetFields() {
		if _, isText := field.GetKind().(*structpb.Value_StringValue); name == "pattern" && isText {
			n++
		}
		if name == "patternProperties" {
			n += len(field.GetStructValue().GetFields())
		}
		n += patterns(field)
	}
	for _, element := range v.GetListValue().GetValues() {
		n += patterns(element)
	}
	return n
}

// CheckPayload returns the violations of the template's schema in a payload.
func (t *Template) CheckPayload(v *structpb.Value) []Problem { return t.payload.check("payload", v) }

// CheckAnswer returns the violations of the step's schema in the answer to a wait.
func (s *Step) CheckAnswer(v *structpb.Value) []Problem { return s.answer.check("result", v) }

// check returns all violations in v. Their paths start with name.
func (s *schema) check(name string, v *structpb.Value) []Problem {
	if s == nil {
		return nil
	}
	instance := process.PlainNumbers(v.AsInterface())
	err := s.compiled.Validate(instance)
	if err == nil {
		return nil
	}
	violated, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []Problem{{Path: name, Message: err.Error()}}
	}
	return flatten(name, instance, violated)
}

// flattening converts the tree of errors from the validator to a list.
type flattening struct {
	problems
	name     string
	instance any
}

func flatten(name string, instance any, e *jsonschema.ValidationError) []Problem {
	f := &flattening{name: name, instance: instance}
	f.visit(e)
	list := f.all()
	slices.SortStableFunc(list, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return slices.Compact(list)
}

func (f *flattening) visit(e *jsonschema.ValidationError) {
	path := f.path(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			f.add(fieldPath(path, name), "is required")
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			f.add(fieldPath(path, name), "is not in the schema, which allows no other fields")
		}
	case *kind.DependentRequired:
		for _, name := range k.Missing {
			f.add(fieldPath(path, name), "is required if %s is set", k.Prop)
		}
	case *kind.PropertyNames:
		f.add(fieldPath(f.owner(f.name, f.instance, len(e.InstanceLocation), k.Property), k.Property),
			"has a name that the schema does not allow")
	case *kind.AnyOf:
		f.branches(path, e, "must match one of %d schemas: %s")
	case *kind.OneOf:
		if len(k.Subschemas) > 1 {
			f.add(path, "must match exactly one schema of oneOf (matches number %d and number %d)", k.Subschemas[0]+1,
				k.Subschemas[1]+1)
			return
		}
		f.branches(path, e, "must match exactly one of %d schemas: %s")
	default:
		if len(e.Causes) == 0 {
			f.add(path, "%s", f.words(e.ErrorKind))
		}
		for _, cause := range e.Causes {
			f.visit(cause)
		}
	}
}

// branches describes what each of several alternative schemas requires.
func (f *flattening) branches(path string, e *jsonschema.ValidationError, format string) {
	const most = 5 // maximum number of schemas in a message
	var alternatives []string
	for i, cause := range e.Causes[:min(len(e.Causes), most)] {
		var wants []string
		for _, p := range flatten(f.name, f.instance, cause) {
			if p.Path != path {
				p.Message = strings.TrimPrefix(strings.TrimPrefix(p.Path, path), ".") + " " + p.Message
			}
			wants = append(wants, p.Message)
		}
		alternatives = append(alternatives, fmt.Sprintf("(%d) %s", i+1, strings.Join(wants, ", ")))
	}
	if len(e.Causes) > most {
		alternatives = append(alternatives, "…")
	}
	f.add(path, format, len(e.Causes), shortened(strings.Join(alternatives, "; ")))
}

var english = message.NewPrinter(language.English)

// words describes what a violated keyword requires. For rare keywords, it returns the message of
// the validator.
func (f *flattening) words(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("must be of type %s (got %s)", strings.Join(k.Want, " or "), k.Got)
	case *kind.Minimum:
		return fmt.Sprintf("must be at least %s (got %s)", number(k.Want), number(k.Got))
	case *kind.Maximum:
		return fmt.Sprintf("must be at most %s (got %s)", number(k.Want), number(k.Got))
	case *kind.ExclusiveMinimum:
		return fmt.Sprintf("must be greater than %s (got %s)", number(k.Want), number(k.Got))
	case *kind.ExclusiveMaximum:
		return fmt.Sprintf("must be less than %s (got %s)", number(k.Want), number(k.Got))
	case *kind.MultipleOf:
		return fmt.Sprintf("must be a multiple of %s (got %s)", number(k.Want), number(k.Got))
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d fields (got %d)", k.Want, k.Got)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d fields (got %d)", k.Want, k.Got)
	case *kind.Contains:
		return "must have an item that matches the schema of contains"
	case *kind.Not:
		return "must not match the schema of not"
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters (got %d)", k.Want, k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters (got %d)", k.Want, k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items (got %d)", k.Want, k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items (got %d)", k.Want, k.Got)
	case *kind.Pattern:
		return fmt.Sprintf("%s must match the pattern %s", shortened(strconv.Quote(k.Got)), k.Want)
	case *kind.UniqueItems:
		return fmt.Sprintf("must have unique items (items %d and %d are equal)", k.Duplicates[0], k.Duplicates[1])
	case *kind.FalseSchema:
		return "must not be set"
	}
	return shortened(k.LocalizedString(english))
}

func number(r *big.Rat) string {
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// owner returns the path of the object that has a property, depth levels below v. If there are
// several, it returns the first by name. It searches because the validator (6.0.3) reports a wrong
// location for propertyNames: it reuses the memory of the location for other values.
func (f *flattening) owner(path string, v any, depth int, property string) string {
	if depth < 0 {
		return ""
	}
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v[property]; ok && depth == 0 {
			return path
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if found := f.owner(fieldPath(path, name), v[name], depth-1, property); found != "" {
				return found
			}
		}
	case []any:
		for i := range v {
			if found := f.owner(fmt.Sprintf("%s[%d]", path, i), v[i], depth-1, property); found != "" {
				return found
			}
		}
	}
	return ""
}

// path formats the location of a value in the instance.
func (f *flattening) path(tokens []string) string {
	path, at := f.name, f.instance
	for _, token := range tokens {
		switch v := at.(type) {
		case []any:
			path += "[" + token + "]"
			if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(v) {
				at = v[i]
			}
		case map[string]any:
			path = fieldPath(path, token)
			at = v[token]
		default:
			path = fieldPath(path, token)
		}
	}
	return path
}
