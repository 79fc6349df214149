package commands

import (
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/admin"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/cron"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/flow"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/job"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/process"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/server"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/sink"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/worker"
)

// tree is the command line. Each package has the commands of one subject; each command has its help
// and an example. The help lists the groups in this order.
type tree struct {
	Process    process.Commands       `embed:""`
	Job        job.Commands           `embed:""`
	Constraint job.ConstraintCommands `embed:""`
	Worker     worker.Commands        `embed:""`
	Cron       cron.Commands          `embed:""`
	Flow       flow.Commands          `embed:""`
	Admin      admin.Commands         `embed:""`
	Sink       sink.Commands          `embed:""`
	Server     server.Commands        `embed:""`

	cli.ColorFlag

	Completion cli.CompletionCmd `cmd:"" group:"other" help:"Print a completion script for a shell."`
	Version    cli.VersionCmd    `cmd:"" group:"other" help:"Print the version."`
}

// New returns the commands of the program, with no flag set, for cli.Main.
func New() any { return new(tree) }
