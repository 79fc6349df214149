package flow

import (
	"regexp"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
)

// rootKind is the type of the root of a plain path.
type rootKind int

const (
	kindJSON rootKind = iota + 1
	kindScalar
	kindTime
)

// wantKinds contains the kinds of roots that a use accepts without a check by CEL. For other kinds,
// CEL reports the errors.
var wantKinds = map[want]rootKind{wantTime: kindTime}

// plainPath is an expression that is only a path, such as payload.user.id. It has the same value as
// in CEL, but is resolved without CEL.
type plainPath struct {
	root   string // the variable
	step   string // ID of the step that it names, or ""
	kind   rootKind
	fields []string
}

var plainName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// celWords are the words that CEL does not accept as names.
var celWords = map[string]bool{
	"as": true, "break": true, "const": true, "continue": true, "else": true, "false": true, "for": true,
	"function": true, "if": true,
	"import": true, "in": true, "let": true, "loop": true, "package": true, "namespace": true, "null": true,
	"return": true, "true": true,
	"var": true, "void": true, "while": true,
}

// parsePlain parses a plain path. It returns nil if the expression is not a plain path or is not
// valid in this place.
func parsePlain(text string, at place) *plainPath {
	names := strings.Split(text, ".")
	for _, name := range names {
		if !plainName.MatchString(name) || celWords[name] {
			return nil
		}
	}
	p := &plainPath{root: names[0], fields: names[1:], kind: kindJSON}
	switch {
	case at.target && text == "fire_time":
		p.kind = kindTime
	case at.target && (text == "cron_id" || text == "attempt"):
		p.kind = kindScalar
	case at.target:
		return nil
	case p.root == "payload", p.root == "item" && at.item:
	case text == "scope", text == "scope_id", text == "index" && at.item:
		p.kind = kindScalar
	case text == "run.id", text == "run.attempt":
		p.root, p.fields, p.kind = text, nil, kindScalar
	case text == "run.created_time":
		p.root, p.fields, p.kind = text, nil, kindTime
	case p.root == "steps" && len(names) == 3 && names[2] == "status":
		p.root, p.step, p.fields, p.kind = text, names[1], nil, kindScalar
	case p.root == "steps" && len(names) >= 3 && (names[2] == "result" || names[2] == "failure"):
		p.root, p.step, p.fields = strings.Join(names[:3], "."), names[1], names[3:]
	default:
		return nil
	}
	return p
}

func (p *plainPath) resolve(e *expression, vars variables) (any, error) {
	found, ok, err := vars.lookup(p.root)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, e.errorf("there is no %s", p.root)
	}
	v, isJSON := found.(*structpb.Value)
	if !isJSON {
		return found, nil
	}
	for i, field := range p.fields {
		object, isObject := v.GetKind().(*structpb.Value_StructValue)
		if !isObject {
			return nil, e.errorf("%s is %s and has no field %q",
				strings.Join(append([]string{p.root}, p.fields[:i]...), "."), kindOf(v), field)
		}
		next, ok := object.StructValue.GetFields()[field]
		if !ok {
			return nil, e.errorf("there is no field %q in %s", field,
				strings.Join(append([]string{p.root}, p.fields[:i]...), "."))
		}
		v = next
	}
	if v.GetKind() == nil {
		return null, nil
	}
	return v, nil
}

// kindOf describes the type of a JSON value for messages.
func kindOf(v *structpb.Value) string {
	switch v.GetKind().(type) {
	case *structpb.Value_BoolValue:
		return "true or false"
	case *structpb.Value_NumberValue:
		return "a number"
	case *structpb.Value_StringValue:
		return "a string"
	case *structpb.Value_ListValue:
		return "a list"
	case *structpb.Value_StructValue:
		return "an object"
	}
	return "null"
}
