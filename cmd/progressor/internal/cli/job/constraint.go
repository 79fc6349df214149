package job

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// ConstraintCommands contains the commands for constraints, which limit jobs.
type ConstraintCommands struct {
	Constraint constraintCmd `cmd:"" group:"job" help:"Limit concurrent jobs and their rate."`
}

type constraintCmd struct {
	Put    constraintPutCmd    `cmd:"" help:"Create or replace a limit for jobs."`
	List   constraintListCmd   `cmd:"" help:"List the limits of a namespace and their use."`
	Delete constraintDeleteCmd `cmd:"" help:"Delete a limit."`
}

type constraintPutCmd struct {
	NS   string `arg:"" name:"ns" help:"Namespace."`
	Name string `arg:"" name:"name" complete:"constraint" help:"Name of the constraint, without =."`

	cli.ClientFlags
	File       string  `short:"f" placeholder:"FILE|-" help:"A Constraint as YAML or JSON; flags replace its values."`
	Match      *string `placeholder:"CEL" help:"Matching jobs, by job.name, job.args, job.priority, job.tags and job.metadata. Default: all."`
	Key        *string `placeholder:"CEL" help:"Each value of this expression has its own limit. Default: one limit for all matching jobs."`
	MaxRunning *int32  `placeholder:"N" help:"Maximum number of running jobs per key. Default: no limit."`
	Rate       string  `field:"rate,rate.count,rate.per" placeholder:"N/DURATION" help:"Maximum number of starts per key and period, such as 10/s or 100/1m."`
	Burst      *int32  `field:"rate.burst" placeholder:"N" help:"Maximum number of starts at once after a time without starts. Default: the N of --rate."`
}

func (constraintPutCmd) Help() string {
	return `Put creates or replaces a limit for jobs. The limit applies at once, including to waiting jobs.
Running jobs count toward it.

    progressor constraint put demo region --match 'job.name == "send_mail"' --key job.args.region --max-running 10
    progressor constraint put demo partner --match '"partner" in job.tags' --rate 100/1m --burst 5
    progressor constraint put demo region -f region.yaml`
}

func (c *constraintPutCmd) Run(a *cli.App) error {
	m := &progressorv1.Constraint{}
	if c.File != "" {
		text, err := a.ReadFile("--file", c.File)
		if err != nil {
			return err
		}
		if err := protoyaml.Unmarshal(text, m); err != nil {
			return cli.UsageError(fmt.Errorf("--file %s: %w", c.File, err))
		}
		if m.GetNamespace() != "" && m.GetNamespace() != c.NS || m.GetName() != "" && m.GetName() != c.Name {
			return cli.UsageError(
				fmt.Errorf("--file %s contains constraint %s of namespace %s, not %s of %s", c.File, m.GetName(),
					m.GetNamespace(), c.Name, c.NS))
		}
	}
	m.Namespace, m.Name = c.NS, c.Name
	if err := c.apply(m); err != nil {
		return cli.UsageError(err)
	}
	return cli.Ask(a, c.OutputFlag, c.Client().Job.PutConstraint,
		&progressorv1.PutConstraintRequest{Constraint: m}, func(resp *progressorv1.PutConstraintResponse) error {
			stored := resp.GetConstraint()
			return output.PrintFields(a.Stdout,
				output.Field{"constraint", output.OneLine(stored.GetNamespace() + "/" + stored.GetName())},
				output.Field{"match", output.OneLine(stored.GetMatch())},
				output.Field{"key", output.OneLine(stored.GetKey())},
				output.Field{"max_running", showLimit(stored.GetMaxRunning())},
				output.Field{"rate", showRate(stored.GetRate())})
		})
}

// apply sets the values of the flags in the constraint.
func (c *constraintPutCmd) apply(m *progressorv1.Constraint) error {
	if c.Match != nil {
		m.Match = *c.Match
	}
	if m.GetMatch() == "" {
		m.Match = "true"
	}
	if c.Key != nil {
		m.Key = *c.Key
	}
	if c.MaxRunning != nil {
		m.MaxRunning = *c.MaxRunning
	}
	if c.Rate != "" {
		rate, err := parseRate(c.Rate)
		if err != nil {
			return fmt.Errorf("--rate %q: %w", c.Rate, err)
		}
		m.Rate = rate
	}
	if c.Burst != nil {
		if m.GetRate() == nil {
			return errors.New("--burst requires --rate")
		}
		m.Rate.Burst = *c.Burst
	}
	if m.GetMaxRunning() == 0 && m.GetRate() == nil {
		return errors.New("this constraint limits nothing: set --max-running N, --rate N/DURATION, or a --file with " +
			"one of them")
	}
	return nil
}

// parseRate parses rates such as 10/s, 100/1m or 5/1h30m.
func parseRate(text string) (*progressorv1.RateLimit, error) {
	number, per, found := strings.Cut(text, "/")
	n, err := strconv.ParseInt(number, 10, 32)
	if !found || err != nil || n < 1 {
		return nil, errors.New("must be a number of jobs and a period, such as 10/s or 100/1m")
	}
	if per != "" && (per[0] < '0' || per[0] > '9') {
		per = "1" + per
	}
	d, err := time.ParseDuration(per)
	if err != nil || d <= 0 {
		return nil, fmt.Errorf("must have a period after the /, such as s, 1m or 1h30m (got %q)", per)
	}
	return &progressorv1.RateLimit{Count: int32(n), Per: durationpb.New(d)}, nil
}

// showRate formats a rate like --rate, with the burst if it differs.
func showRate(r *progressorv1.RateLimit) string {
	if r == nil {
		return ""
	}
	text := fmt.Sprintf("%d/%s", r.GetCount(), output.Duration(r.GetPer().AsDuration()))
	if r.GetBurst() != r.GetCount() {
		text += fmt.Sprintf(" burst %d", r.GetBurst())
	}
	return text
}

func showLimit(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

type constraintListCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	cli.ClientFlags
}

func (constraintListCmd) Help() string {
	return `List shows the limits of a namespace. For each limit it shows the running jobs, the jobs that have a
slot but no worker yet (held), the waiting jobs, and when the rate permits the next start.

    progressor constraint list demo
    progressor constraint list demo -o json`
}

func (c *constraintListCmd) Run(a *cli.App) error {
	return cli.Ask(a, c.OutputFlag, c.Client().Job.ListConstraints,
		&progressorv1.ListConstraintsRequest{Namespace: c.NS}, func(resp *progressorv1.ListConstraintsResponse) error {
			var rows []table.Row
			for _, s := range resp.GetConstraints() {
				m := s.GetConstraint()
				rows = append(rows, table.Row{
					output.OneLine(m.GetName()), output.OneLine(m.GetMatch()), output.OneLine(m.GetKey()),
					showLimit(m.GetMaxRunning()), showRate(m.GetRate()), s.GetRunning(), s.GetHeld(), s.GetWaiting(),
					output.Time(s.GetNextFreeTime()),
				})
			}
			none := cli.None("limits", c.NS, false,
				fmt.Sprintf("create one with progressor constraint put %s NAME …", output.ShellWord(c.NS)))
			return output.PrintList(a.Stdout, none, table.Row{"name", "match", "key", "max running", "rate", "running",
				output.Minor("held"), "waiting", output.Minor("next free")}, rows, "max running")
		})
}

type constraintDeleteCmd struct {
	NS   string `arg:"" name:"ns" help:"Namespace."`
	Name string `arg:"" name:"name" complete:"constraint" help:"Name of the constraint."`
	cli.ClientFlags
}

func (constraintDeleteCmd) Help() string {
	return `Delete deletes a limit. Jobs that wait only for this limit may run.

    progressor constraint delete demo region`
}

func (c *constraintDeleteCmd) Run(a *cli.App) error {
	return cli.Ask(a, c.OutputFlag, c.Client().Job.DeleteConstraint,
		&progressorv1.DeleteConstraintRequest{Namespace: c.NS, Name: c.Name},
		func(*progressorv1.DeleteConstraintResponse) error {
			return output.PrintFields(a.Stdout, output.Field{"constraint", output.OneLine(c.NS + "/" + c.Name)},
				output.Field{"state", "deleted"})
		})
}
