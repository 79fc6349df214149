package commands

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/admin"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/cron"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/deploy"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/flow"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/job"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/process"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/server"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/sink"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/worker"
)

// tree is the command line. Each embedded field has the commands of one subject. Every command has
// a help text with an example. The help lists the groups in the order of the fields.
type tree struct {
	Process    process.Commands       `embed:""`
	Deploy     deploy.Commands        `embed:""`
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

// New returns the commands of the program, with no flag set, for cli.Main. If name is a command, it
// returns only the commands of the same subject, because parsing all commands takes more CPU time
// than running most commands.
func New(name string) any {
	t := reflect.TypeFor[tree]()
	for i := range t.NumField() {
		subject := t.Field(i)
		if _, embedded := subject.Tag.Lookup("embed"); embedded && hasCommand(subject.Type, name) {
			color := reflect.StructField{Name: "Color", Type: reflect.TypeFor[cli.ColorFlag](), Tag: `embed:""`}
			return reflect.New(reflect.StructOf([]reflect.StructField{subject, color})).Interface()
		}
	}
	return new(tree)
}

// hasCommand reports whether a struct of commands has a command with the given name.
func hasCommand(commands reflect.Type, name string) bool {
	for i := range commands.NumField() {
		field := commands.Field(i)
		_, isCommand := field.Tag.Lookup("cmd")
		if isCommand && cmp.Or(field.Tag.Get("name"), strings.ToLower(field.Name)) == name {
			return true
		}
	}
	return false
}
