package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// configFile is a configuration file as read.
type configFile struct {
	values     map[string]fileValue // by key with dots
	namespaces []fileNamespace
	crons      []fileCron
	templates  []fileTemplate
}

// fileNamespace is a namespace of the configuration file.
type fileNamespace struct {
	*progressorv1.Namespace
	path string // such as namespaces[1]
	node *yaml.Node
}

// wrong says where in the file an error is.
func (n fileNamespace) wrong(err error) error {
	if invalid, ok := errors.AsType[*process.InvalidError](err); ok {
		path := strings.TrimPrefix(invalid.Field, "namespace.")
		return fmt.Errorf("line %d: %s.%s: %s", lineOf(n.node, path), n.path, path, invalid.Message)
	}
	return fmt.Errorf("line %d: %s: %w", n.node.Line, n.path, err)
}

// parseConfigFile reads YAML. A key that is not among keys is refused by its name: a typing error must not become a
// default.
func parseConfigFile(text []byte, keys map[string]bool) (configFile, error) {
	file := configFile{values: map[string]fileValue{}}
	root, err := parseYAML(text)
	if err != nil || root == nil {
		return file, err
	}
	if root.Kind != yaml.MappingNode {
		return file, fmt.Errorf("line %d: want keys and values", root.Line)
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		switch key.Value {
		case "namespaces":
			file.namespaces, err = parseNamespaces(value)
		case "crons":
			file.crons, err = parseCrons(value)
		case "templates":
			file.templates, err = parseTemplates(value)
		default:
			err = file.add(key, value, fileKey(key.Value), keys)
		}
		if err != nil {
			return file, err
		}
	}
	return file, nil
}

// add takes the setting key, or the settings below it.
func (f *configFile) add(keyNode, node *yaml.Node, key string, keys map[string]bool) error {
	if node.Kind == yaml.MappingNode && hasChildren(keys, key) {
		for i := 0; i+1 < len(node.Content); i += 2 {
			below := key + "." + fileKey(node.Content[i].Value)
			if err := f.add(node.Content[i], node.Content[i+1], below, keys); err != nil {
				return err
			}
		}
		return nil
	}
	switch {
	case !keys[key]:
		return fmt.Errorf("line %d: unknown key %s; known: %s", keyNode.Line, key, strings.Join(siblings(keys, key), ", "))
	case node.Kind != yaml.ScalarNode:
		return fmt.Errorf("line %d: %s: want one value", node.Line, key)
	case node.Tag == "!!null":
		return nil
	}
	if _, twice := f.values[key]; twice {
		return fmt.Errorf("line %d: key %s is set twice", keyNode.Line, key)
	}
	f.values[key] = fileValue{text: node.Value, line: node.Line}
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

// siblings lists the known keys nearest to an unknown one.
func siblings(keys map[string]bool, key string) []string {
	group := key[:strings.LastIndex(key, ".")+1]
	var names []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if strings.HasPrefix(k, group) {
			names = append(names, k)
		}
	}
	if group == "" {
		names = append(names, "namespaces", "crons", "templates")
	}
	return names
}

func parseNamespaces(list *yaml.Node) ([]fileNamespace, error) {
	if list.Kind == yaml.ScalarNode && list.Tag == "!!null" {
		return nil, nil
	}
	if list.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("line %d: namespaces: want a list", list.Line)
	}
	var all []fileNamespace
	seen := map[string]bool{}
	for i, node := range list.Content {
		ns := &progressorv1.Namespace{}
		path := fmt.Sprintf("namespaces[%d]", i)
		if err := messageFromYAML(node, ns, path); err != nil {
			return nil, err
		}
		switch {
		case ns.GetNamespace() == "":
			return nil, fmt.Errorf("line %d: %s.namespace is missing", node.Line, path)
		case seen[ns.GetNamespace()]:
			return nil, fmt.Errorf("line %d: namespace %s is there twice", node.Line, ns.GetNamespace())
		}
		seen[ns.GetNamespace()] = true
		all = append(all, fileNamespace{ns, path, node})
	}
	return all, nil
}

// parseYAML reads the only document of a text; nil where there is none.
func parseYAML(text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one document")
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return nil, nil
	}
	if root := doc.Content[0]; root.Tag != "!!null" {
		return root, nil
	}
	return nil, nil
}
