package configfile

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	"github.com/progressor-engine/progressor/process"
)

// inFile is the position of a list element in the configuration file.
type inFile struct {
	path string // such as crons[1]
	node *yaml.Node
}

// Wrong adds the position in the file to an error. The field in an error begins with the kind of
// the element.
func (f inFile) Wrong(kind string, err error) error {
	if invalid, ok := errors.AsType[*process.InvalidError](err); ok {
		path := strings.TrimPrefix(invalid.Field, kind+".")
		return fmt.Errorf("line %d: %s.%s: %s", protoyaml.LineOf(f.node, path), f.path, path, invalid.Message)
	}
	return fmt.Errorf("line %d: %s: %w", f.node.Line, f.path, err)
}

// WrongAt returns an error about a field of the element.
func (f inFile) WrongAt(path, text string) error {
	return fmt.Errorf("line %d: %s.%s", protoyaml.LineOf(f.node, path), f.path, text)
}

// parseList parses a list of the configuration file. names are the required fields that identify a
// message, beginning with the namespace.
func parseList[M proto.Message, E any](
	list *yaml.Node, key string, element func(M, inFile) E, names ...protoreflect.Name,
) ([]E, error) {
	if list.Kind == yaml.ScalarNode && list.Tag == "!!null" {
		return nil, nil
	}
	if list.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("line %d: %s: must be a list", list.Line, key)
	}
	var all []E
	seen := map[string]bool{}
	for i, node := range list.Content {
		at := inFile{fmt.Sprintf("%s[%d]", key, i), node}
		var none M
		m := none.ProtoReflect().New()
		if err := protoyaml.UnmarshalNode(node, m.Interface(), at.path); err != nil {
			return nil, err
		}
		name := ""
		for _, field := range names {
			value := m.Get(m.Descriptor().Fields().ByName(field)).String()
			if value == "" {
				return nil, fmt.Errorf("line %d: %s.%s is missing", node.Line, at.path, field)
			}
			if name != "" {
				name = " of namespace " + name
			}
			name = value + name
		}
		if seen[name] {
			return nil, fmt.Errorf("line %d: %s: %s %s is defined twice", node.Line, at.path,
				strings.TrimSuffix(key, "s"), name)
		}
		seen[name] = true
		all = append(all, element(m.Interface().(M), at))
	}
	return all, nil
}
