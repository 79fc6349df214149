package flow

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type templateCmd struct {
	Check   templateCheckCmd   `cmd:"" help:"Check flow templates in files, without an engine."`
	Put     templatePutCmd     `cmd:"" help:"Store templates from files. A changed template becomes the next version."`
	Get     templateGetCmd     `cmd:"" help:"Show a template and its versions."`
	List    templateListCmd    `cmd:"" help:"List the templates of a namespace."`
	Enable  templateEnableCmd  `cmd:"" help:"Allow new runs of a template."`
	Disable templateDisableCmd `cmd:"" help:"Reject new runs of a template; existing runs continue."`
	Delete  templateDeleteCmd  `cmd:"" help:"Delete a template with all its versions."`
}

type templateCheckCmd struct {
	cli.OutputFlag
	File []string `short:"f" required:"" sep:"none" placeholder:"FILE|-" help:"Templates as YAML or JSON, one or more documents; can be repeated."`
}

func (templateCheckCmd) Help() string {
	return `Check reports all problems of flow templates, each with its line and path. It needs no engine. For a
valid template, it lists the steps. The exit code is 2 if there are problems.

    progressor template check -f order.yaml
    progressor template check -f order.yaml -f report.json -o json`
}

// checkedTemplate is the result of checking a template.
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

func (c *templateCheckCmd) Run(a *cli.App) error {
	var all []checkedTemplate
	wrong := 0
	for _, name := range c.File {
		text, err := a.ReadFile("--file", name)
		if err != nil {
			return err
		}
		for _, checked := range checkTemplates(text) {
			checked.File = name
			wrong += len(checked.Problems)
			all = append(all, checked)
		}
	}
	if err := c.print(a, all); err != nil {
		return err
	}
	if wrong > 0 {
		return cli.UsageError(
			fmt.Errorf("--file: %s in %s", output.Counted(wrong, "problem"), output.Counted(len(c.File), "file")))
	}
	return nil
}

func (c *templateCheckCmd) print(a *cli.App, all []checkedTemplate) error {
	if c.JSON() {
		return output.PrintJSON(a.Stdout, map[string]any{"templates": all})
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
			fmt.Fprintf(a.Stdout, "%s: %s\n", where,
				output.OneLine(flow.Problem{Path: p.Path, Message: p.Message}.String()))
		}
	}
	return nil
}

// printSteps prints the steps of a valid template.
func printSteps(a *cli.App, t checkedTemplate) error {
	order := "in sequence"
	if !t.compiled.Linear {
		order = "ordered by depends_on"
	}
	fmt.Fprintf(a.Stdout, "%s: %s is valid, %s %s\n", t.File, t.Type, output.Counted(len(t.compiled.Steps), "step"),
		order)
	return printStepRows(a, t.compiled)
}

func printStepRows(a *cli.App, t *flow.Template) error {
	var rows []table.Row
	for i := range t.Steps {
		s := &t.Steps[i]
		var after []string
		for _, on := range s.DependsOn {
			after = append(after, t.Steps[on].ID)
		}
		rows = append(rows, table.Row{s.ID, actionWords(s), strings.Join(after, ", "),
			output.OneLine(s.Source.GetForEach().GetItems()),
			output.OneLine(s.Source.GetCondition()), s.Source.GetCompensation().GetName()})
	}
	return output.PrintRows(a.Stdout, table.Row{"step", "does", "after", "for each", "if", "undone by"}, rows)
}

// actionWords describes the action of a step in words.
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
		return "wait for an external worker"
	case *progressorv1.StepTemplate_Delay:
		if d := action.Delay.GetDuration(); d != nil {
			return "delay of " + output.Duration(d.AsDuration())
		}
		return "delay until " + output.OneLine(action.Delay.GetTime())
	case *progressorv1.StepTemplate_Run:
		return "run of " + action.Run.GetType()
	}
	return ""
}

// checkTemplates checks the templates of a file. A template need not have a namespace, because the
// command line may set it.
func checkTemplates(text []byte) []checkedTemplate {
	docs, err := templatesFrom(text)
	if err != nil {
		return []checkedTemplate{{Problems: []templateProblem{problemOf(err)}}}
	}
	var all []checkedTemplate
	for _, d := range docs {
		all = append(all, checkTemplate(d))
	}
	return all
}

func checkTemplate(d templateDoc) checkedTemplate {
	checked := checkedTemplate{Type: d.template.GetType(), Problems: []templateProblem{}}
	if d.template.GetNamespace() == "" {
		d.template.Namespace = "any"
	}
	compiled, problems := flow.Compile(d.template)
	for _, p := range problems {
		checked.Problems = append(checked.Problems,
			templateProblem{Line: protoyaml.LineOf(d.node, p.Path), Path: p.Path, Message: p.Message})
	}
	slices.SortStableFunc(checked.Problems, func(a, b templateProblem) int { return a.Line - b.Line })
	checked.compiled = compiled
	return checked
}

// templateDoc is a template from a file, with its YAML node.
type templateDoc struct {
	template *progressorv1.Template
	node     *yaml.Node
	wrapped  bool // part of a GetTemplateResponse
}

// templatesFrom parses Templates, one per document, alone or in a GetTemplateResponse.
func templatesFrom(text []byte) (docs []templateDoc, err error) {
	roots, err := protoyaml.ParseDocuments(text)
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		d := templateDoc{template: &progressorv1.Template{}, node: root}
		for i := 0; i+1 < len(root.Content); i += 2 {
			if root.Kind == yaml.MappingNode && root.Content[i].Value == "template" {
				d.node, d.wrapped = root.Content[i+1], true
			}
		}
		if d.wrapped {
			got := &progressorv1.GetTemplateResponse{}
			err = protoyaml.UnmarshalNode(root, got, "")
			proto.Merge(d.template, got.GetTemplate())
		} else {
			err = protoyaml.UnmarshalNode(root, d.template, "")
		}
		if err != nil {
			return nil, err
		}
		docs = append(docs, d)
	}
	if len(docs) == 0 {
		return nil, errors.New("must be a Template, but the input is empty")
	}
	return docs, nil
}

// problemOf converts an error of protoyaml to a problem. It moves the line number from the message
// to the field Line.
func problemOf(err error) templateProblem {
	p := templateProblem{Message: err.Error()}
	p.Message = strings.TrimPrefix(p.Message, "yaml: ")
	if n, _ := fmt.Sscanf(p.Message, "line %d: ", &p.Line); n == 1 {
		_, p.Message, _ = strings.Cut(p.Message, ": ")
	}
	return p
}
