package flow

import (
	"regexp"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
)

// rootKind is what the root of a plain path is.
type rootKind int

const (
	kindJSON rootKind = iota + 1
	kindScalar
	kindTime
)

// wantKinds are the kinds of roots that fit as they are; of the others CEL says what is wrong.
var wantKinds = map[want]rootKind{wantTime: kindTime}

// plainPath is an expression that only names something: payload.user.id. It means what it means to CEL, and is resolved without it.
type plainPath struct {
	root   string // the variable
	step   string // that it names, or ""
	kind   rootKind
	fields []string
}

var plainName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// celWords are those that CEL does not take as names.
var celWords = map[string]bool{
	"as": true, "break": true, "const": true, "continue": true, "else": true, "false": true, "for": true, "function": true, "if": true,
	"import": true, "in": true, "let": true, "loop": true, "package": true, "namespace": true, "null": true, "return": true, "true": true,
	"var": true, "void": true, "while": true,
}

// parsePlain takes an expression as a plain path; nil where it is something else, also where it is none that is good here.
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
			return nil, e.errorf("%s is %s, and has no field %q", strings.Join(append([]string{p.root}, p.fields[:i]...), "."), kindOf(v), field)
		}
		next, ok := object.StructValue.GetFields()[field]
		if !ok {
			return nil, e.errorf("there is no field %q in %s", field, strings.Join(append([]string{p.root}, p.fields[:i]...), "."))
		}
		v = next
	}
	if v.GetKind() == nil {
		return null, nil
	}
	return v, nil
}

// kindOf names what a JSON value is.
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
