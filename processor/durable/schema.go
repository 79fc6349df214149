package durable

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Patterns of the strings that encoding/json decodes as a time, a number or bytes.
const (
	timePattern = `^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?` +
		`(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`
	numberPattern = `^(-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?)?$`
	base64Pattern = `^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`
)

// checkSchema returns an error if the schema of a wait is invalid, or if the value of DueAnswer
// does not match it. The engine makes the same checks.
func checkSchema(w *progressorv1.WaitAction) error {
	if w.GetResultSchema() == nil {
		return nil
	}
	const document = "https://schema.invalid/document"
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(noLoader{})
	err := compiler.AddResource(document, w.GetResultSchema().AsMap())
	var schema *jsonschema.Schema
	if err == nil {
		schema, err = compiler.Compile(document)
	}
	if err != nil {
		return fmt.Errorf("the schema is not valid: %s", cut(strings.ReplaceAll(err.Error(), document, "")))
	}
	if w.GetDueAction() != progressorv1.WaitAction_DUE_ACTION_SUCCEED {
		return nil
	}
	err = schema.Validate(process.PlainNumbers(w.GetDueResult().AsInterface()))
	if violated, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		for len(violated.Causes) > 0 {
			violated = violated.Causes[0]
		}
		reason := violated.ErrorKind.LocalizedString(message.NewPrinter(language.English))
		if len(violated.InstanceLocation) > 0 {
			reason = strings.Join(violated.InstanceLocation, ".") + ": " + reason
		}
		return fmt.Errorf("the value of DueAnswer does not match the schema of the answer: %s", cut(reason))
	}
	return err
}

// noLoader rejects references to other documents.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("only references inside the document are allowed")
}

// schemaFor returns the JSON Schema of the values of a type, or nil if it would accept every value.
// The schema accepts every value for the parts of the type that decode themselves, and where a type
// contains itself.
func schemaFor[T any]() any {
	if schema := schemaOf(reflect.TypeFor[T](), nil); len(schema) > 0 {
		return schema
	}
	return nil
}

// nullable returns a schema that also accepts null, because encoding/json writes nil as null.
func nullable(schema map[string]any) map[string]any {
	if name, ok := schema["type"].(string); ok {
		schema["type"] = []string{name, "null"}
	}
	return schema
}

// schemaOf returns the schema of a type. within are the types that contain it.
func schemaOf(t reflect.Type, within []reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time", "pattern": timePattern,
			"description": "a time, such as 2026-01-31T15:04:05Z"}
	case reflect.TypeFor[json.Number]():
		return map[string]any{"type": []string{"string", "number"}, "pattern": numberPattern}
	}
	if decodesItself(t) || slices.Contains(within, t) {
		return map[string]any{}
	}
	within = append(slices.Clip(within), t)
	switch t.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return integerSchema(t.Bits()-1, true)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return integerSchema(t.Bits(), false)
	case reflect.Float32:
		return map[string]any{"type": "number", "minimum": -math.MaxFloat32, "maximum": math.MaxFloat32,
			"description": "a number"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 { // base64
			return nullable(map[string]any{"type": "string", "pattern": base64Pattern,
				"description": "base64"})
		}
		return nullable(map[string]any{"type": "array", "items": schemaOf(t.Elem(), within)})
	case reflect.Map:
		return nullable(map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem(), within)})
	case reflect.Pointer:
		return nullable(schemaOf(t.Elem(), within))
	case reflect.Struct:
		return objectSchema(t, within)
	default:
		return map[string]any{}
	}
}

// integerSchema returns the schema of an integer with a number of bits, without the sign. Numbers
// in JSON are doubles, and the doubles nearest to the limits of 64-bit integers are outside these
// limits.
func integerSchema(bits int, isSigned bool) map[string]any {
	limit := math.Exp2(float64(bits))
	schema := map[string]any{"type": "integer", "minimum": 0, "maximum": limit - 1}
	if isSigned {
		schema["minimum"] = -limit
	}
	if bits > 32 {
		schema["maximum"] = math.Nextafter(limit, 0)
		schema["description"] = "a whole number, at least 0" // the maximum would only confuse people
		if isSigned {
			schema["minimum"], schema["description"] = -math.Nextafter(limit, 0), "a whole number"
		}
	}
	return schema
}

// decodesItself reports whether encoding/json decodes a type with one of its methods.
func decodesItself(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return pointer.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		pointer.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// objectSchema returns the schema of a struct. A field is required unless it is a pointer or has
// the option omitempty or omitzero.
func objectSchema(t reflect.Type, within []reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case !field.IsExported() && !field.Anonymous, name == "-" && options == "":
			continue
		case field.Anonymous && name == "", strings.Contains(options, "string"):
			return map[string]any{"type": "object"} // the rules for its fields are not described here
		case name == "":
			name = field.Name
		}
		properties[name] = schemaOf(field.Type, within)
		if field.Type.Kind() != reflect.Pointer && !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}
