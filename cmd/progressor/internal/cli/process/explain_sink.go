package process

import (
	"fmt"
	"strings"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/internal/durations"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type explainSinkCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" name:"id" complete:"sink" help:"Sink id."`

	cli.ClientFlags
}

func (explainSinkCmd) Help() string {
	return `Explain sink shows whether a sink delivers, which node does it, what waits, the last error, what
happens next, and the command that would unblock it.

    progressor explain sink orders audit
    progressor explain sink orders audit -o json`
}

func (c *explainSinkCmd) Run(a *cli.App) error {
	return cli.Ask(a, c.OutputFlag, c.Client().Change.ExplainSink,
		&progressorv1.ExplainSinkRequest{Namespace: c.NS, SinkId: c.ID},
		func(resp *progressorv1.ExplainSinkResponse) error {
			m := resp.GetSink()
			s := m.GetStatus()
			lag := "none"
			if s.GetLagChanges() > 0 {
				lag = fmt.Sprintf("%s changes, the oldest %s old", output.Thousands(s.GetLagChanges()),
					durations.Rounded(s.GetLag().AsDuration()))
			}
			return output.PrintFields(a.Stdout,
				output.Field{"sink", m.GetNamespace() + "/" + m.GetSinkId()},
				output.Field{"state", strings.ToLower(output.Enum(s.GetState()))},
				output.Field{"lag", lag},
				output.Field{"now", output.Sentence(resp.GetDetail())},
				output.Field{"next", output.Sentence(resp.GetNext())},
				output.Field{"unblock", output.OneLine(resp.GetUnblock())},
			)
		})
}
