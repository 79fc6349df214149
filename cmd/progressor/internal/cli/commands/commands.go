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
// and an example.
type tree struct {
	Server     server.Commands        `embed:""`
	Process    process.Commands       `embed:""`
	Cron       cron.Commands          `embed:""`
	Job        job.Commands           `embed:""`
	Flow       flow.Commands          `embed:""`
	Constraint job.ConstraintCommands `embed:""`
	Sink       sink.Commands          `embed:""`
	Worker     worker.Commands        `embed:""`
	Admin      admin.Commands         `embed:""`

	Completion cli.CompletionCmd `cmd:"" group:"other" help:"Print a completion script for a shell."`
	Version    cli.VersionCmd    `cmd:"" group:"other" help:"Print the version."`
}

// New returns the commands of the program, with no flag set, for cli.Main.
func New() any { return new(tree) }
