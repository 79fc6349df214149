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

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// configFile is a parsed configuration file.
type configFile struct {
	values     map[string]fileValue // by dotted key
	namespaces []fileNamespace
	crons      []fileCron
	templates  []fileTemplate
}

// fileNamespace is a namespace of the configuration file.
type fileNamespace struct {
	*progressorv1.Namespace
	inFile
}

// parseConfigFile parses YAML. It rejects unknown keys, so that a typing error does not silently
// become a default.
func parseConfigFile(text []byte, keys map[string]bool) (configFile, error) {
	file := configFile{values: map[string]fileValue{}}
	var defaults *yaml.Node
	root, err := parseYAML(text)
	if err != nil || root == nil {
		return file, err
	}
	if root.Kind != yaml.MappingNode {
		return file, fmt.Errorf("line %d: must be keys and values", root.Line)
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		switch key.Value {
		case "namespaces":
			file.namespaces, err = parseList(value, key.Value,
				func(ns *progressorv1.Namespace, at inFile) fileNamespace { return fileNamespace{ns, at} }, "namespace")
		case "crons":
			file.crons, err = parseList(value, key.Value,
				func(c *progressorv1.Cron, at inFile) fileCron { return fileCron{c, at} }, "namespace", "cron_id")
		case "templates":
			file.templates, err = parseList(value, key.Value,
				func(t *progressorv1.Template, at inFile) fileTemplate { return fileTemplate{t, at} }, "namespace", "type")
		case "defaults":
			defaults = value
		default:
			err = file.add(key, value, fileKey(key.Value), keys)
		}
		if err != nil {
			return file, err
		}
	}
	err = file.applyDefaults(defaults)
	return file, err
}

// add adds the setting with this key, or the settings below it.
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
		return fmt.Errorf("line %d: %s: must be a single value", node.Line, key)
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

// siblings returns the known keys that are closest to an unknown one.
func siblings(keys map[string]bool, key string) []string {
	group := key[:strings.LastIndex(key, ".")+1]
	var names []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if strings.HasPrefix(k, group) {
			names = append(names, k)
		}
	}
	if group == "" {
		names = append(names, "defaults", "namespaces", "crons", "templates")
	}
	return names
}

// parseYAML parses a text with a single document. It returns nil if there is none.
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
