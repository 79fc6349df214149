package durable

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// schemaFor returns the JSON Schema of the values of a type, or nil if it would accept every value.
// The schema accepts every value for the parts of the type that decode themselves, may be null, or
// contain a type that they are a part of.
func schemaFor[T any]() any {
	if schema := schemaOf(reflect.TypeFor[T](), nil); len(schema) > 0 {
		return schema
	}
	return nil
}

// schemaOf returns the schema of a type. within are the types that contain it.
func schemaOf(t reflect.Type, within []reflect.Type) map[string]any {
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
		return map[string]any{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 { // base64
			return map[string]any{"type": "string"}
		}
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), within)}
	case reflect.Struct:
		return objectSchema(t, within)
	default:
		return map[string]any{}
	}
}

// decodesItself reports whether encoding/json decodes a type with one of its methods. It also
// reports true for json.Number, a string that is decoded from a number.
func decodesItself(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return t == reflect.TypeFor[json.Number]() || pointer.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
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
