package flow

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// templateArgs identify a template.
type templateArgs struct {
	NS   string `arg:"" name:"ns" help:"Namespace."`
	Type string `arg:"" name:"type" complete:"template" help:"Type of the template."`
}

type templatePutCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace of templates that do not name one."`

	cli.ClientFlags
	File     []string `short:"f" required:"" sep:"none" placeholder:"FILE|-" help:"Templates as YAML or JSON, one or more documents, or the output of get -o json; can be repeated."`
	Expected *int32   `name:"expected-version" placeholder:"N" help:"Fail unless this is the newest version or, with 0, unless the template is new. Valid only for a single template."`
	DryRun   bool     `help:"Only let the engine check the templates; store nothing."`
}

func (templatePutCmd) Help() string {
	return `Put stores templates from files. If a template equals its newest version, nothing is stored, so put
can be repeated. Existing runs keep their version. All files are checked before the first template
is stored.

    progressor template put demo -f order.yaml
    progressor template put -f templates.yaml -f report.json
    progressor template get demo order -o json | progressor template put other -f -`
}

func (c *templatePutCmd) Run(a *cli.App) error {
	docs, err := c.read(a)
	if err != nil {
		return err
	}
	if c.Expected != nil && len(docs) > 1 {
		return cli.UsageError(
			fmt.Errorf("--expected-version requires a single template, and --file contains %d", len(docs)))
	}
	ctx, cancel := a.Interruptible()
	defer cancel()
	var rows []table.Row
	for _, d := range docs {
		resp, err := c.Client().Flow.PutTemplate(ctx,
			&progressorv1.PutTemplateRequest{Template: d.template, ExpectedVersion: c.Expected,
				ValidateOnly: c.DryRun})
		switch {
		case err != nil:
			return ofTemplate(templateArgs{d.template.GetNamespace(), d.template.GetType()}, err)
		case c.JSON():
			if err := output.PrintMessage(a.Stdout, resp); err != nil {
				return err
			}
			continue
		}
		what, t := "unchanged", resp.GetTemplate()
		switch {
		case c.DryRun:
			what = "valid"
		case resp.GetCreated():
			what = "stored"
		}
		rows = append(rows, table.Row{t.GetNamespace(), t.GetType(), t.GetVersion(), what})
	}
	if c.JSON() {
		return nil
	}
	return output.PrintRows(a.Stdout, table.Row{"namespace", "template", "version", "put"}, rows)
}

// read parses and checks the files.
func (c *templatePutCmd) read(a *cli.App) (docs []templateDoc, err error) {
	for _, name := range c.File {
		text, err := a.ReadFile("--file", name)
		if err != nil {
			return nil, err
		}
		all, err := templatesFrom(text)
		if err != nil {
			return nil, cli.UsageError(fmt.Errorf("--file %s: %w", name, err))
		}
		for _, d := range all {
			// The output of get can be put into another namespace. Other files keep the namespace
			// that they name.
			if d.template.GetNamespace() == "" || c.NS != "" && d.wrapped {
				d.template.Namespace = c.NS
			}
			if c.NS != "" && d.template.GetNamespace() != c.NS {
				return nil, cli.UsageError(
					fmt.Errorf("--file %s: template %s belongs to namespace %s, not %s", name, d.template.GetType(),
						d.template.GetNamespace(), c.NS))
			}
			if d.template.GetNamespace() == "" {
				return nil, cli.UsageError(
					fmt.Errorf(
						"--file %s: template %s has no namespace: set it, for example: progressor template put "+
							"demo -f %s", name, d.template.GetType(), output.ShellWord(name)))
			}
			if _, problems := flow.Compile(d.template); len(problems) > 0 {
				wrong := &cli.CodedError{
					Err:  fmt.Errorf("--file %s:%d: %s", name, protoyaml.LineOf(d.node, problems[0].Path), problems[0]),
					Code: cli.ExitUsage}
				if name != "-" {
					wrong.Next = "progressor template check -f " + output.ShellWord(name)
				}
				return nil, wrong
			}
			docs = append(docs, d)
		}
	}
	return docs, nil
}

type templateGetCmd struct {
	templateArgs
	cli.ClientFlags
	Version int32 `placeholder:"N" help:"Version. Default: the newest."`
}

func (templateGetCmd) Help() string {
	return `Get shows a template: its policies, its steps and its versions. The output of get -o json can be
edited and passed to put -f.

    progressor template get demo order
    progressor template get demo order --version 2 -o json > order.json`
}

func (c *templateGetCmd) Run(a *cli.App) error {
	return ofTemplate(c.templateArgs,
		cli.Ask(a, c.OutputFlag, c.Client().Flow.GetTemplate,
			&progressorv1.GetTemplateRequest{Namespace: c.NS, Type: c.Type, Version: c.Version},
			func(resp *progressorv1.GetTemplateResponse) error {
				t := resp.GetTemplate()
				if err := printTemplate(a, t, resp.GetVersions()); err != nil {
					return err
				}
				compiled, problems := flow.Compile(t)
				if len(problems) > 0 {
					return nil // from a newer engine: show its fields
				}
				fmt.Fprintln(a.Stdout)
				return printStepRows(a, compiled)
			}))
}

func printTemplate(a *cli.App, t *progressorv1.Template, versions []int32) error {
	order := cmp.Or(output.Enum(t.GetStepOrder()), "LINEAR")
	return output.PrintFields(a.Stdout,
		output.Field{"template", output.OneLine(t.GetNamespace() + "/" + t.GetType())},
		output.Field{"version", fmt.Sprintf("%d of %s", t.GetVersion(), showVersions(versions))},
		output.Field{"name", output.OneLine(t.GetName())},
		output.Field{"description", output.OneLine(t.GetDescription())},
		output.Field{"state", templateState(t)},
		output.Field{"concurrency", output.Enum(t.GetConcurrencyPolicy())},
		output.Field{"deduplicated by", output.OneLine(strings.Join(t.GetDedupeKeys(), ", "))},
		output.Field{"timeout", output.Duration(t.GetTimeout().AsDuration())},
		output.Field{"cancel", output.Message(t.GetCancelPolicy(), 0)},
		output.Field{"retry", output.Message(t.GetRetryPolicy(), 0)},
		output.Field{"payload schema", output.Message(t.GetPayloadSchema(), 0)},
		output.Field{"order", order},
		output.Field{"created", output.Time(t.GetCreatedTime())},
		output.Field{"updated", output.Time(t.GetUpdatedTime())},
	)
}

func showVersions(versions []int32) string {
	var parts []string
	for _, v := range versions {
		parts = append(parts, fmt.Sprint(v))
	}
	return strings.Join(parts, ", ")
}

func templateState(t *progressorv1.Template) string {
	if t.Enabled != nil && !t.GetEnabled() {
		return "disabled"
	}
	return "enabled"
}

type templateListCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`

	cli.ClientFlags
	cli.PageFlags `set:"rows=templates"`
}

func (templateListCmd) Help() string {
	return `List shows the newest version of each template of a namespace.

    progressor template list demo
    progressor template list demo --all -o json`
}

func (c *templateListCmd) Run(a *cli.App) error {
	return cli.PrintPages(a, c, c.Client().Flow.ListTemplates,
		&progressorv1.ListTemplatesRequest{Namespace: c.NS},
		func(all *progressorv1.ListTemplatesResponse) error {
			var rows []table.Row
			for _, t := range all.GetTemplates() {
				rows = append(rows,
					table.Row{t.GetType(), t.GetVersion(), templateState(t), len(t.GetSteps()),
						output.Time(t.GetUpdatedTime()), output.OneLine(t.GetName())})
			}
			none := cli.None("templates", c.NS, false, "store one with progressor template put -f FILE")
			return output.PrintList(a.Stdout, none,
				table.Row{"template", "version", "state", "steps", output.Minor("updated"), "name"}, rows)
		})
}

type templateEnableCmd struct {
	templateArgs
	cli.ClientFlags
}

func (templateEnableCmd) Help() string {
	return `Enable allows new runs of a template again.

    progressor template enable demo order`
}

func (c *templateEnableCmd) Run(a *cli.App) error {
	return ofTemplate(c.templateArgs, cli.Show(a, c, c.Client().Flow.EnableTemplate,
		&progressorv1.EnableTemplateRequest{Namespace: c.NS, Type: c.Type}, showTemplate))
}

type templateDisableCmd struct {
	templateArgs
	cli.ClientFlags
}

func (templateDisableCmd) Help() string {
	return `Disable rejects new runs of a template. If a cron would start one, its fire fails. Existing runs
continue.

    progressor template disable demo order`
}

func (c *templateDisableCmd) Run(a *cli.App) error {
	return ofTemplate(c.templateArgs, cli.Show(a, c, c.Client().Flow.DisableTemplate,
		&progressorv1.DisableTemplateRequest{Namespace: c.NS, Type: c.Type}, showTemplate))
}

type templateDeleteCmd struct {
	templateArgs
	cli.ClientFlags
}

func (templateDeleteCmd) Help() string {
	return `Delete deletes a template with all its versions. It fails while one of its runs has not ended. Ended
runs are kept, without the details that only the template contains.

    progressor template delete demo order`
}

func (c *templateDeleteCmd) Run(a *cli.App) error {
	return ofTemplate(c.templateArgs,
		cli.Ask(a, c.OutputFlag, c.Client().Flow.DeleteTemplate,
			&progressorv1.DeleteTemplateRequest{Namespace: c.NS, Type: c.Type},
			func(resp *progressorv1.DeleteTemplateResponse) error {
				return printState(a, &progressorv1.Template{Namespace: c.NS, Type: c.Type}, "deleted")
			}))
}

// showTemplate prints the template of a response.
func showTemplate[P interface{ GetTemplate() *progressorv1.Template }](a *cli.App, resp P) error {
	return printState(a, resp.GetTemplate(), templateState(resp.GetTemplate()))
}

func printState(a *cli.App, t *progressorv1.Template, state string) error {
	return output.PrintFields(a.Stdout, output.Field{"template", output.OneLine(t.GetNamespace() + "/" + t.GetType())},
		output.Field{"version", output.ID(int64(t.GetVersion()))}, output.Field{"state", state})
}

// ofTemplate adds the command to run next to an error about a template.
func ofTemplate(t templateArgs, err error) error {
	ns, name := output.ShellWord(t.NS), output.ShellWord(t.Type)
	switch client.Detail(err).GetReason() {
	case progressorv1.ErrorDetail_REASON_TEMPLATE_NOT_FOUND:
		return &cli.Advised{Err: err, Next: "progressor template list " + ns}
	case progressorv1.ErrorDetail_REASON_TEMPLATE_DISABLED:
		if strings.Contains(err.Error(), "is disabled") {
			return &cli.Advised{Err: err, Next: "progressor template enable " + ns + " " + name}
		}
		if strings.Contains(err.Error(), "has not ended: cancel it") {
			return &cli.Advised{Err: err, Next: "progressor run list " + ns + " --type " + name}
		}
		return &cli.Advised{Err: err, Next: "progressor template get " + ns + " " + name}
	case progressorv1.ErrorDetail_REASON_STALE_ETAG:
		return &cli.Advised{Err: err, Next: "progressor template get " + ns + " " + name}
	default:
		return err
	}
}
