package main

import (
	"context"
	"fmt"

	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// fileTemplate is a template of the configuration file.
type fileTemplate struct {
	*progressorv1.Template
	inFile
}

// check returns the error that the engine would return.
func (t fileTemplate) check() error {
	if _, problems := flow.Compile(t.Template); len(problems) > 0 {
		return fmt.Errorf("line %d: %s.%s", lineOf(t.node, problems[0].Path), t.path, problems[0])
	}
	return nil
}

// put stores the template if it differs from its newest version.
func (t fileTemplate) put(ctx context.Context, all *flows.Flows) error {
	if _, err := all.PutTemplate(ctx, &progressorv1.PutTemplateRequest{Template: t.Template}); err != nil {
		return t.wrong("template", err)
	}
	return nil
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
