package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"go.yaml.in/yaml/v3"

	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type templateCmd struct {
	Check templateCheckCmd `cmd:"" help:"Check templates of flows in files, without an engine."`
}

type templateCheckCmd struct {
	outputFlag
	File []string `short:"f" required:"" sep:"none" placeholder:"FILE|-" help:"A Template as YAML or JSON; may be given several times."`
}

func (templateCheckCmd) Help() string {
	return `Check tells everything that is wrong with templates, each with its line and its path, and needs no engine. Of one that is good it
shows the steps. It ends with code 2 where something is wrong.

    progressor template check -f order.yaml
    progressor template check -f order.yaml -f report.json -o json`
}

// checkedTemplate is what is told of a file.
type checkedTemplate struct {
	File     string            `json:"file"`
	Type     string            `json:"type,omitempty"`
	Problems []templateProblem `json:"problems"`

	compiled *flow.Template
}

type templateProblem struct {
	Line    int    `json:"line,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

func (c *templateCheckCmd) Run(a *app) error {
	var all []checkedTemplate
	wrong := 0
	for _, name := range c.File {
		text, err := a.readFile("--file", name)
		if err != nil {
			return err
		}
		checked := checkTemplate(text)
		checked.File = name
		wrong += len(checked.Problems)
		all = append(all, checked)
	}
	if err := c.print(a, all); err != nil {
		return err
	}
	if wrong > 0 {
		return usageError(fmt.Errorf("--file: %s in %s", counted(wrong, "problem"), counted(len(all), "file")))
	}
	return nil
}

func (c *templateCheckCmd) print(a *app, all []checkedTemplate) error {
	if c.json() {
		return printJSON(a.Stdout, map[string]any{"templates": all})
	}
	for i, t := range all {
		if i > 0 {
			fmt.Fprintln(a.Stdout)
		}
		if t.compiled != nil {
			if err := printSteps(a, t); err != nil {
				return err
			}
		}
		for _, p := range t.Problems {
			where := t.File
			if p.Line > 0 {
				where += fmt.Sprintf(":%d", p.Line)
			}
			fmt.Fprintf(a.Stdout, "%s: %s\n", where, oneLine(flow.Problem{Path: p.Path, Message: p.Message}.String()))
		}
	}
	return nil
}

// printSteps shows a template that is good.
func printSteps(a *app, t checkedTemplate) error {
	order := "one after the other"
	if !t.compiled.Linear {
		order = "as depends_on says"
	}
	fmt.Fprintf(a.Stdout, "%s: %s is good, %s %s\n", t.File, t.Type, counted(len(t.compiled.Steps), "step"), order)
	var rows []table.Row
	for i := range t.compiled.Steps {
		s := &t.compiled.Steps[i]
		var after []string
		for _, on := range s.DependsOn {
			after = append(after, t.compiled.Steps[on].ID)
		}
		rows = append(rows, table.Row{s.ID, actionWords(s), strings.Join(after, ", "), oneLine(s.Source.GetForEach().GetItems()),
			oneLine(s.Source.GetCondition()), s.Source.GetCompensation().GetName()})
	}
	return printRows(a.Stdout, table.Row{"step", "does", "after", "for each", "if", "undone by"}, rows)
}

// actionWords say what a step does.
func actionWords(s *flow.Step) string {
	switch action := s.Source.GetAction().(type) {
	case *progressorv1.StepTemplate_Job:
		if name := action.Job.GetName(); name != "" {
			return "job " + name
		}
		return "job " + s.ID
	case *progressorv1.StepTemplate_Process:
		return strings.TrimSpace("process " + action.Process.GetNamespace())
	case *progressorv1.StepTemplate_Wait:
		if action.Wait.GetKind() == progressorv1.WaitAction_KIND_HUMAN {
			return "wait for a person"
		}
		return "wait for an answer"
	case *progressorv1.StepTemplate_Delay:
		if d := action.Delay.GetDuration(); d != nil {
			return "delay of " + d.AsDuration().String()
		}
		return "delay until " + oneLine(action.Delay.GetTime())
	case *progressorv1.StepTemplate_Run:
		return "run of " + action.Run.GetType()
	}
	return ""
}

// checkTemplate checks the text of a file. A template without a namespace is checked as of any: a command line may say it.
func checkTemplate(text []byte) checkedTemplate {
	t, root, err := templateFrom(text)
	if err != nil {
		return checkedTemplate{Problems: []templateProblem{problemOf(err)}}
	}
	checked := checkedTemplate{Type: t.GetType(), Problems: []templateProblem{}}
	if t.GetNamespace() == "" {
		t.Namespace = "any"
	}
	compiled, problems := flow.Compile(t)
	for _, p := range problems {
		checked.Problems = append(checked.Problems, templateProblem{Line: lineOf(root, p.Path), Path: p.Path, Message: p.Message})
	}
	slices.SortStableFunc(checked.Problems, func(a, b templateProblem) int { return a.Line - b.Line })
	checked.compiled = compiled
	return checked
}

// templateFrom reads a Template, alone or in a GetTemplateResponse, and the node that it stands in.
func templateFrom(text []byte) (*progressorv1.Template, *yaml.Node, error) {
	root, err := parseYAML(text)
	switch {
	case err != nil:
		return nil, nil, err
	case root == nil:
		return nil, nil, errors.New("found nothing: want a Template")
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Kind == yaml.MappingNode && root.Content[i].Value == "template" {
			got := &progressorv1.GetTemplateResponse{Template: &progressorv1.Template{}}
			err := messageFromYAML(root, got, "")
			return got.GetTemplate(), root.Content[i+1], err
		}
	}
	t := &progressorv1.Template{}
	return t, root, messageFromYAML(root, t, "")
}

// problemOf takes the line out of an error of protoyaml, which begins with it.
func problemOf(err error) templateProblem {
	p := templateProblem{Message: err.Error()}
	p.Message = strings.TrimPrefix(p.Message, "yaml: ")
	if n, _ := fmt.Sscanf(p.Message, "line %d: ", &p.Line); n == 1 {
		_, p.Message, _ = strings.Cut(p.Message, ": ")
	}
	return p
}
