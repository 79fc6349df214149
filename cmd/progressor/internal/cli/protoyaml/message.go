package protoyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
)

// Unmarshal parses a message from YAML or JSON.
func Unmarshal(text []byte, m proto.Message) error {
	root, err := Parse(text)
	switch {
	case err != nil:
		return err
	case root == nil:
		return fmt.Errorf("must be %s, but the input is empty", withArticle(m.ProtoReflect().Descriptor()))
	}
	return UnmarshalNode(root, m, "")
}

// UnmarshalNode parses a message from YAML, like protojson with four additions: field names may
// have underscores or dashes, enum values may be short (none for HISTORY_MODE_NONE), durations may
// have any unit (1h30m), and an object or list in the place of bytes is sent as JSON.
func UnmarshalNode(node *yaml.Node, m proto.Message, path string) error {
	tree, err := Tree(node, m.ProtoReflect().Descriptor(), path)
	if err != nil {
		return err
	}
	return UnmarshalTree(tree, node, m, path)
}

// UnmarshalTree parses a message from a tree that Tree has returned. Errors name the line of node.
func UnmarshalTree(tree any, node *yaml.Node, m proto.Message, path string) error {
	text, err := json.Marshal(tree)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := protojson.Unmarshal(text, m); err != nil {
		return fmt.Errorf("line %d: %s: %w", node.Line, orRoot(path), PlainError(err))
	}
	return nil
}

// withArticle returns the name of a message with its article.
func withArticle(m protoreflect.MessageDescriptor) string {
	if strings.ContainsAny(string(m.Name()[:1]), "AEIO") {
		return "an " + string(m.Name())
	}
	return "a " + string(m.Name())
}

func orRoot(path string) string {
	if path == "" {
		return "document"
	}
	return path
}

// Tree converts a YAML node to a tree that encoding/json encodes as protojson of desc.
func Tree(node *yaml.Node, desc protoreflect.MessageDescriptor, path string) (any, error) {
	switch desc.FullName() {
	case "google.protobuf.Duration":
		d, err := time.ParseDuration(node.Value)
		if node.Kind != yaml.ScalarNode || err != nil {
			return nil, fmt.Errorf("line %d: %s: must be a duration with a unit, such as 30s or 1h", node.Line, path)
		}
		return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s", nil
	case "google.protobuf.Timestamp":
		if _, err := time.Parse(time.RFC3339Nano, node.Value); err != nil {
			return nil, fmt.Errorf("line %d: %s: must be a time, such as 2026-11-20T15:04:05Z", node.Line, path)
		}
		return node.Value, nil
	case "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue":
		var v any
		if err := node.Decode(&v); err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", node.Line, path, err)
		}
		return v, exactNumbers(node, path, 53)
	}
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return map[string]any{}, nil // an empty value, as in `pull:`, sets the field
	}
	if node.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: %s: must have the fields of %s", node.Line, orRoot(path), withArticle(desc))
	}
	tree := make(map[string]any, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		field := fieldNamed(desc, key.Value)
		below := strings.TrimPrefix(path+"."+key.Value, ".")
		if field == nil {
			return nil, fmt.Errorf("line %d: %s: unknown field; use one of %s", key.Line, below, fieldNames(desc))
		}
		if _, twice := tree[field.JSONName()]; twice {
			return nil, fmt.Errorf("line %d: %s is set twice", key.Line, below)
		}
		if other := chosenBefore(tree, field); other != "" {
			return nil, fmt.Errorf("line %d: %s: cannot be set together with %s", key.Line, below, other)
		}
		value, err := fieldTree(node.Content[i+1], field, below)
		if err != nil {
			return nil, err
		}
		tree[field.JSONName()] = value
	}
	return tree, nil
}

// chosenBefore returns the field of the same oneof that a tree already has, or "" if there is none.
func chosenBefore(tree map[string]any, field protoreflect.FieldDescriptor) string {
	choice := field.ContainingOneof()
	if choice == nil {
		return ""
	}
	for i := range choice.Fields().Len() {
		if other := choice.Fields().Get(i); tree[other.JSONName()] != nil {
			return string(other.Name())
		}
	}
	return ""
}

func fieldNamed(desc protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := desc.Fields().ByJSONName(name); f != nil {
		return f
	}
	return desc.Fields().ByName(protoreflect.Name(strings.ReplaceAll(name, "-", "_")))
}

func fieldNames(desc protoreflect.MessageDescriptor) string {
	var names []string
	for i := range desc.Fields().Len() {
		names = append(names, string(desc.Fields().Get(i).Name()))
	}
	return strings.Join(names, ", ")
}

func fieldTree(node *yaml.Node, field protoreflect.FieldDescriptor, path string) (any, error) {
	switch {
	case field.IsMap():
		if node.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("line %d: %s: must be keys and values", node.Line, path)
		}
		tree := make(map[string]any, len(node.Content)/2)
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i].Value
			value, err := valueTree(node.Content[i+1], field.MapValue(), path+"."+key)
			if err != nil {
				return nil, err
			}
			tree[key] = value
		}
		return tree, nil
	case field.IsList():
		if node.Kind != yaml.SequenceNode {
			return nil, fmt.Errorf("line %d: %s: must be a list", node.Line, path)
		}
		list := make([]any, 0, len(node.Content))
		for i, item := range node.Content {
			value, err := valueTree(item, field, fmt.Sprintf("%s[%d]", path, i))
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	default:
		return valueTree(node, field, path)
	}
}

func valueTree(node *yaml.Node, field protoreflect.FieldDescriptor, path string) (any, error) {
	if field.Message() != nil {
		return Tree(node, field.Message(), path)
	}
	if field.Kind() == protoreflect.BytesKind && node.Kind != yaml.ScalarNode {
		return bytesOfTree(node, path)
	}
	if node.Kind != yaml.ScalarNode {
		return nil, fmt.Errorf("line %d: %s: must be a single value", node.Line, path)
	}
	switch field.Kind() {
	case protoreflect.EnumKind:
		name, err := EnumName(field.Enum(), node.Value)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", node.Line, path, err)
		}
		return name, nil
	case protoreflect.BoolKind:
		var b bool
		if err := node.Decode(&b); err != nil {
			return nil, fmt.Errorf("line %d: %s: must be true or false", node.Line, path)
		}
		return b, nil
	default:
		if !isNumber(node.Value, field.Kind()) { // protojson would report the line of the generated JSON
			return nil, fmt.Errorf("line %d: %s: must be a number (got %q)", node.Line, path, node.Value)
		}
		return node.Value, nil // protojson accepts numbers in strings
	}
}

// isNumber reports whether a numeric field accepts a text. Other fields accept any text.
func isNumber(text string, kind protoreflect.Kind) bool {
	number, err := strconv.ParseFloat(text, 64)
	switch kind {
	case protoreflect.StringKind, protoreflect.BytesKind:
		return true
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return err == nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return err == nil && number == math.Trunc(number) && number >= math.MinInt32 && number <= math.MaxInt32
	default:
		return err == nil && number == math.Trunc(number)
	}
}

// bytesOfTree converts an object or a list in the place of bytes to its JSON.
func bytesOfTree(node *yaml.Node, path string) (any, error) {
	var v any
	err := node.Decode(&v)
	if err == nil {
		if err := exactNumbers(node, path, 64); err != nil {
			return nil, err
		}
		var text []byte
		if text, err = json.Marshal(v); err == nil {
			return text, nil // encoding/json writes it in base64, as protojson requires
		}
	}
	return nil, fmt.Errorf("line %d: %s: %w", node.Line, path, err)
}

// EnumName returns the full name of an enum value. The given name may be in upper or lower case,
// and may lack the prefix of its type.
func EnumName(desc protoreflect.EnumDescriptor, name string) (string, error) {
	upper := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	var short []string
	prefix := output.EnumPrefix(desc)
	for i := range desc.Values().Len() {
		full := string(desc.Values().Get(i).Name())
		if full == upper || full == prefix+upper {
			return full, nil
		}
		if i > 0 {
			short = append(short, strings.TrimPrefix(full, prefix))
		}
	}
	return "", fmt.Errorf("unknown value %q; use one of %s", name, strings.Join(short, ", "))
}

// jsonError matches the beginning of an error of protojson. Depending on the build, it contains a
// no-break space or a space.
var jsonError = regexp.MustCompile(`^proto:[ \x{a0}]+(?:syntax error )?(?:\(line (\d+):(\d+)\): )?`)

// PlainError returns an error of protojson in plainer words, with its position and its cause.
func PlainError(err error) error {
	text := err.Error()
	m := jsonError.FindStringSubmatch(text)
	if m == nil {
		return err
	}
	if text = text[len(m[0]):]; m[1] != "" {
		text = "line " + m[1] + ", column " + m[2] + ": " + text
	}
	return errors.New(text)
}

// Parse parses a text with a single document. It returns nil if there is none.
func Parse(text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("must be a single document")
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return nil, nil
	}
	if root := doc.Content[0]; root.Tag != "!!null" {
		return root, nil
	}
	return nil, nil
}

// ParseDocuments parses the documents of a text that are not empty.
func ParseDocuments(text []byte) (roots []*yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return roots, nil
		case err != nil:
			return nil, err
		}
		if doc.Kind == yaml.DocumentNode && len(doc.Content) > 0 && doc.Content[0].Tag != "!!null" {
			roots = append(roots, doc.Content[0])
		}
	}
}
