package configfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// File is a parsed configuration file.
type File struct {
	Path       string           // "" if there is none
	Values     map[string]Value // by dotted key
	Namespaces []Namespace
	Crons      []Cron
	Templates  []Template
	Sinks      []Sink
}

// Namespace is a namespace of the configuration file.
type Namespace struct {
	*progressorv1.Namespace
	inFile
}

// Cron is a cron of the configuration file.
type Cron struct {
	*progressorv1.Cron
	inFile
}

// Template is a template of the configuration file.
type Template struct {
	*progressorv1.Template
	inFile
}

// Sink is a sink of the configuration file.
type Sink struct {
	*progressorv1.Sink
	inFile
}

// Parse parses YAML. It rejects unknown keys, so that a misspelled key is not silently ignored.
func Parse(text []byte, keys map[string]bool) (File, error) {
	file := File{Values: map[string]Value{}}
	var defaults *yaml.Node
	root, err := protoyaml.Parse(text)
	if err != nil || root == nil {
		return file, err
	}
	if root.Kind != yaml.MappingNode {
		return file, fmt.Errorf("line %d: the file must contain keys and values", root.Line)
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		switch key.Value {
		case "namespaces":
			file.Namespaces, err = parseList(value, key.Value,
				func(ns *progressorv1.Namespace, at inFile) Namespace { return Namespace{ns, at} }, "namespace")
		case "crons":
			file.Crons, err = parseList(value, key.Value,
				func(c *progressorv1.Cron, at inFile) Cron { return Cron{c, at} }, "namespace", "cron_id")
		case "templates":
			file.Templates, err = parseList(value, key.Value,
				func(t *progressorv1.Template, at inFile) Template { return Template{t, at} }, "namespace", "type")
		case "sinks":
			file.Sinks, err = parseList(value, key.Value,
				func(m *progressorv1.Sink, at inFile) Sink { return Sink{m, at} }, "namespace", "sink_id")
		case "defaults":
			defaults = value
		default:
			err = file.add(key, value, Key(key.Value), keys)
		}
		if err != nil {
			return file, err
		}
	}
	err = file.applyDefaults(defaults)
	return file, err
}

// add adds the setting with this key, or the settings below it.
func (f *File) add(keyNode, node *yaml.Node, key string, keys map[string]bool) error {
	if node.Kind == yaml.MappingNode && hasChildren(keys, key) {
		for i := 0; i+1 < len(node.Content); i += 2 {
			below := key + "." + Key(node.Content[i].Value)
			if err := f.add(node.Content[i], node.Content[i+1], below, keys); err != nil {
				return err
			}
		}
		return nil
	}
	switch {
	case !keys[key]:
		return fmt.Errorf("line %d: unknown key %s; use one of %s", keyNode.Line, key,
			strings.Join(siblings(keys, key), ", "))
	case node.Kind != yaml.ScalarNode:
		return fmt.Errorf("line %d: %s: must be a single value", node.Line, key)
	case node.Tag == "!!null":
		return nil
	}
	if _, twice := f.Values[key]; twice {
		return fmt.Errorf("line %d: key %s is set twice", keyNode.Line, key)
	}
	f.Values[key] = Value{Text: node.Value, Line: node.Line}
	return nil
}

func hasChildren(keys map[string]bool, key string) bool {
	for k := range keys {
		if strings.HasPrefix(k, key+".") {
			return true
		}
	}
	return false
}

// siblings returns the known keys in the same group as an unknown key.
func siblings(keys map[string]bool, key string) []string {
	group := key[:strings.LastIndex(key, ".")+1]
	var names []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if strings.HasPrefix(k, group) {
			names = append(names, k)
		}
	}
	if group == "" {
		names = append(names, "defaults", "namespaces", "crons", "templates", "sinks")
	}
	return names
}

// Value is a scalar in the file.
type Value struct {
	Text string
	Line int
}

// Key returns the key of a flag in the file: db.max-conns is db: {max_conns: …}.
func Key(flag string) string { return strings.ReplaceAll(flag, "-", "_") }
