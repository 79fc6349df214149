package cron

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// cronFieldFlags are the flags that create and update share.
type cronFieldFlags struct {
	File string `short:"f" placeholder:"FILE|-" help:"A Cron as YAML or JSON, or the output of get -o json; flags and expressions replace its values."`
	specFlags
	policyFlags
	targetFlags
	Metadata string `placeholder:"JSON|@FILE" help:"Searchable attributes of the cron, a JSON object."`
}

// read reads the file if the flag is set.
func (f *cronFieldFlags) read(a *cli.App, ns, id string) (*progressorv1.Cron, error) {
	c := &progressorv1.Cron{}
	if f.File != "" {
		text, err := a.ReadFile("--file", f.File)
		if err != nil {
			return nil, err
		}
		if c, err = Read(text); err != nil {
			return nil, cli.UsageError(fmt.Errorf("--file %s: %w", f.File, err))
		}
		switch {
		case c.GetNamespace() != "" && c.GetNamespace() != ns:
			return nil, cli.UsageError(
				fmt.Errorf("--file %s contains a cron of namespace %s, not %s", f.File, c.GetNamespace(), ns))
		case c.GetCronId() != "" && c.GetCronId() != id:
			return nil, cli.UsageError(fmt.Errorf("--file %s contains cron %s, not %s", f.File, c.GetCronId(), id))
		}
	}
	c.Namespace, c.CronId = ns, id
	return c, nil
}

// Read parses a Cron, alone or in a GetCronResponse.
func Read(text []byte) (*progressorv1.Cron, error) {
	root, err := protoyaml.Parse(text)
	switch {
	case err != nil:
		return nil, err
	case root == nil:
		return nil, errors.New("the file is empty")
	case len(root.Content) == 2 && root.Content[0].Value == "cron":
		got := &progressorv1.GetCronResponse{Cron: &progressorv1.Cron{}}
		err := protoyaml.UnmarshalNode(root, got, "")
		return got.GetCron(), err
	}
	c := &progressorv1.Cron{}
	return c, protoyaml.UnmarshalNode(root, c, "")
}

// apply sets expressions and flags in a cron, and returns the error that the engine would return.
func (f *cronFieldFlags) apply(a *cli.App, c *progressorv1.Cron, expressions []string) error {
	if c.GetSpec() == nil {
		c.Spec = &progressorv1.CronSpec{}
	}
	if len(expressions) > 0 {
		c.Spec.Expressions = expressions
	}
	if c.GetTarget() == nil {
		c.Target = &progressorv1.CronTarget{}
	}
	if err := f.specFlags.apply(c.GetSpec()); err != nil {
		return err
	}
	if err := f.policyFlags.apply(c); err != nil {
		return err
	}
	if err := f.targetFlags.apply(a, c.GetTarget()); err != nil {
		return err
	}
	if f.Metadata != "" {
		var err error
		if c.Metadata, err = a.Metadata(f.Metadata); err != nil {
			return err
		}
	}
	switch {
	case len(c.GetSpec().GetExpressions()) == 0:
		return cli.UsageError(errors.New("EXPRESSION: is required: set one or more, such as '0 3 * * *', or --file"))
	case len(expressions) > 1 &&
		!slices.ContainsFunc(expressions, func(e string) bool { return strings.ContainsAny(e, " @") }):
		return cli.UsageError(
			fmt.Errorf("EXPRESSION: must be a single argument: quote it, as in '%s'", strings.Join(expressions, " ")))
	case c.GetTarget().GetTarget() == nil:
		return cli.UsageError(
			errors.New("target: is required: set one of --start-process, --start-run, --job, --notify and --http, or " +
				"a target in --file"))
	}
	if err := CheckCron(c); err != nil {
		return flagError(err, f.File)
	}
	return nil
}

type cronCreateCmd struct {
	cronArgs
	Expressions []string `arg:"" optional:"" name:"expression" help:"When the cron fires: five fields, six with seconds first, @daily and similar, or @every 90s. With several, it fires at the times of all."`

	cli.ClientFlags
	cronFieldFlags
	Paused bool   `help:"Create the cron paused."`
	Reason string `placeholder:"TEXT" help:"Reason, shown while it is paused."`
}

func (cronCreateCmd) Help() string {
	return `Create creates a cron. At each fire time it starts a run: a process, a flow run, a job, a
notification or an HTTP request.

    progressor cron create demo nightly '0 3 * * *' --timezone Europe/Berlin --start-process --overlap skip \
        --args '{"order":"A-7","items":[{"sku":"tea"}]}'
    progressor cron create demo poll '*/5 * * * * *' --http http://127.0.0.1:9000/poll --overlap cancel_prev --failure retry --timeout 8s
    progressor cron create demo payday '0 9 LW * *' '0 9 15W * *' --notify payroll --exclude '* * 24-26 12 *'
    progressor cron create flows daily_report '0 6 * * *' --start-run scheduled_report --scope system \
        --scope-id daily_report --payload '{"from": "${fire_time - duration(\"24h\")}", "to": "${fire_time}"}'
    progressor cron create demo digest '0 7 * * MON-FRI' --job digest --target-namespace echo \
        --args '{"list": "customers"}' --job-options '{"max_retry": 3}'
    progressor cron create demo nightly -f nightly.yaml`
}

func (c *cronCreateCmd) Run(a *cli.App) error {
	cr, err := c.read(a, c.NS, c.ID)
	if err != nil {
		return err
	}
	cr.Paused = cr.GetPaused() || c.Paused
	if c.Reason != "" {
		cr.PauseNote = c.Reason
	}
	cr.Etag = ""
	if err := c.apply(a, cr, c.Expressions); err != nil {
		return err
	}
	return flagOf(cli.Show(a, c, c.Client().Cron.CreateCron,
		&progressorv1.CreateCronRequest{Cron: cr}, printCron), c.File)
}

type cronUpdateCmd struct {
	cronArgs
	Expressions []string `arg:"" optional:"" name:"expression" help:"New expressions, which replace the existing ones."`

	cli.ClientFlags
	cronFieldFlags
	Etag string `placeholder:"ETAG" help:"Update only if the cron has this etag. Default: the etag of the file, or of the cron that was read."`
}

func (cronUpdateCmd) Help() string {
	return `Update changes the settings that the flags name. With --file, the file replaces all settings, and
missing ones return to their defaults. A paused cron stays paused. The ledger is kept, and past fire
times are not decided again.

    progressor cron update demo nightly '30 3 * * *'
    progressor cron update demo nightly --overlap cancel_prev --timeout 10m
    progressor cron get demo nightly -o json > nightly.json
    progressor cron update demo nightly -f nightly.json`
}

func (c *cronUpdateCmd) Run(a *cli.App) error {
	cr, err := c.read(a, c.NS, c.ID)
	if err != nil {
		return err
	}
	if c.Etag == "" && len(c.Expressions) == 0 && reflect.ValueOf(c.cronFieldFlags).IsZero() {
		return cli.UsageError(
			errors.New("nothing to change: set expressions, flags such as --timezone and --overlap, or --file"))
	}
	ctx, cancel := a.Request()
	defer cancel()
	stored, err := c.Client().Cron.GetCron(ctx, &progressorv1.GetCronRequest{Namespace: c.NS, CronId: c.ID})
	if err != nil {
		return err
	}
	if c.File == "" {
		cr = proto.CloneOf(stored.GetCron())
	}
	cr.Paused, cr.PauseNote = stored.GetCron().GetPaused(), stored.GetCron().GetPauseNote()
	if c.Etag != "" {
		cr.Etag = c.Etag
	}
	if err := c.apply(a, cr, c.Expressions); err != nil {
		return err
	}
	return flagOf(cli.Show(a, c, c.Client().Cron.UpdateCron,
		&progressorv1.UpdateCronRequest{Cron: cr}, printCron), c.File)
}
