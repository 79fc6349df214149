package cron

import (
	"errors"
	"fmt"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// startRunFlags define a target that starts a flow run.
type startRunFlags struct {
	StartRun        string  `xor:"target" placeholder:"TYPE" complete:"template" help:"Each run is a flow run of this template; SUCCEEDED is a success, EXPIRED a timeout."`
	TemplateVersion *int32  `placeholder:"N" help:"Version of the template with --start-run. Default: 0, the newest one when it fires."`
	Payload         *string `placeholder:"JSON|@FILE" help:"Payload of the run with --start-run, as JSON. Its strings may contain expressions such as $${fire_time}, $${cron_id} and $${attempt}."`
	Scope           *string `placeholder:"SCOPE" help:"Scope of the run with --start-run."`
	ScopeID         *string `placeholder:"ID" help:"Scope id of the run with --start-run."`
	RunMetadata     string  `placeholder:"JSON|@FILE" help:"Searchable attributes of the run with --start-run, in addition to those that identify the fire."`
}

// apply sets the values of the flags in a target that starts a run.
func (f *startRunFlags) apply(a *cli.App, t *progressorv1.StartRunTarget) (err error) {
	if t == nil {
		return cli.Requires("--start-run", cli.SetFlags(
			cli.Given{Flag: "--template-version", Set: f.TemplateVersion != nil},
			cli.Given{Flag: "--payload", Set: f.Payload != nil},
			cli.Given{Flag: "--scope", Set: f.Scope != nil},
			cli.Given{Flag: "--scope-id", Set: f.ScopeID != nil},
			cli.Given{Flag: "--run-metadata", Set: f.RunMetadata != ""}))
	}
	cli.Set(&t.Version, f.TemplateVersion)
	cli.Set(&t.Scope, f.Scope)
	cli.Set(&t.ScopeId, f.ScopeID)
	if f.Payload != nil {
		if t.PayloadTemplate, err = a.JSONValue("--payload", *f.Payload); err != nil {
			return err
		}
	}
	if f.RunMetadata != "" {
		t.Metadata, err = a.Attributes("--run-metadata", f.RunMetadata)
	}
	return err
}

// jobTargetFlags define a target that enqueues a job.
type jobTargetFlags struct {
	Job        string `xor:"target" placeholder:"NAME" help:"Each run is a job of this name with --args; SUCCEEDED is a success."`
	JobOptions string `placeholder:"JSON|@FILE" help:"Options of the job with --job, such as '{\"max_retry\": 3}': those of docs/jobs.md except run_time."`
}

// apply sets the values of the flags in a target that enqueues a job.
func (f *jobTargetFlags) apply(a *cli.App, t *progressorv1.EnqueueJobTarget, args cli.PayloadFlags) (err error) {
	if t == nil {
		if f.JobOptions != "" {
			return cli.UsageError(errors.New("--job-options requires --job"))
		}
		return nil
	}
	if args.ArgsBase64 != nil {
		return cli.UsageError(errors.New("--args-base64: args of a job are JSON: use --args"))
	}
	if args.Args != nil {
		if t.Args, err = a.JSONValue("--args", *args.Args); err != nil {
			return err
		}
	}
	if f.JobOptions != "" {
		text, err := a.TextOrFile("--job-options", f.JobOptions)
		if err != nil {
			return err
		}
		t.Options = &progressorv1.JobOptions{}
		if err := protoyaml.Unmarshal(text, t.GetOptions()); err != nil {
			return cli.UsageError(fmt.Errorf("--job-options: %w", err))
		}
	}
	return nil
}

// showStartRun describes a target that starts a run.
func showStartRun(t *progressorv1.StartRunTarget) string {
	text := "start a run of " + t.GetType()
	if t.GetVersion() != 0 {
		text += " version " + output.ID(int64(t.GetVersion()))
	}
	if t.GetScope() != "" || t.GetScopeId() != "" {
		text += " for " + t.GetScope() + "/" + t.GetScopeId()
	}
	if t.GetPayloadTemplate() != nil {
		text += " with " + output.Message(t.GetPayloadTemplate(), output.CellLimit)
	}
	return text
}
