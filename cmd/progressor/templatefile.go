package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// fileTemplate is a template of the configuration file.
type fileTemplate struct {
	*progressorv1.Template
	path string // such as templates[1]
	node *yaml.Node
}

// parseTemplates reads the list templates.
func parseTemplates(list *yaml.Node) ([]fileTemplate, error) {
	if list.Kind == yaml.ScalarNode && list.Tag == "!!null" {
		return nil, nil
	}
	if list.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("line %d: templates: want a list", list.Line)
	}
	var all []fileTemplate
	seen := map[[2]string]bool{}
	for i, node := range list.Content {
		t := fileTemplate{Template: &progressorv1.Template{}, path: fmt.Sprintf("templates[%d]", i), node: node}
		if err := messageFromYAML(node, t.Template, t.path); err != nil {
			return nil, err
		}
		name := [2]string{t.GetNamespace(), t.GetType()}
		switch {
		case t.GetNamespace() == "":
			return nil, fmt.Errorf("line %d: %s.namespace is missing", node.Line, t.path)
		case t.GetType() == "":
			return nil, fmt.Errorf("line %d: %s.type is missing", node.Line, t.path)
		case seen[name]:
			return nil, fmt.Errorf("line %d: %s: template %s of namespace %s is there twice", node.Line, t.path, t.GetType(), t.GetNamespace())
		}
		seen[name] = true
		all = append(all, t)
	}
	return all, nil
}

// check refuses what the engine would refuse.
func (t fileTemplate) check() error {
	if _, problems := flow.Compile(t.Template); len(problems) > 0 {
		return fmt.Errorf("line %d: %s.%s", lineOf(t.node, problems[0].Path), t.path, problems[0])
	}
	return nil
}

// put stores the template, where it differs from its newest version.
func (t fileTemplate) put(ctx context.Context, all *flows.Flows) error {
	_, err := all.PutTemplate(ctx, &progressorv1.PutTemplateRequest{Template: t.Template})
	var invalid *process.InvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		path := strings.TrimPrefix(invalid.Field, "template.")
		return fmt.Errorf("line %d: %s.%s: %s", lineOf(t.node, path), t.path, path, invalid.Message)
	}
	return fmt.Errorf("line %d: %s: %w", t.node.Line, t.path, err)
}

// putTemplates stores the templates of the file.
func (s *settings) putTemplates(ctx context.Context, all *flows.Flows) error {
	for _, t := range s.templates {
		if err := t.put(ctx, all); err != nil {
			return fmt.Errorf("configuration file %s: %w", s.path, err)
		}
	}
	return nil
}
