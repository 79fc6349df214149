package main

import (
	"errors"

	"google.golang.org/protobuf/encoding/protojson"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// startRunFlags say of which template a run is, and with what it starts.
type startRunFlags struct {
	StartRun        string  `xor:"target" placeholder:"TYPE" help:"A run is one of a flow, of this template; SUCCEEDED is a success, EXPIRED a timeout."`
	TemplateVersion *int32  `placeholder:"N" help:"Version of the template, with --start-run; 0, the default: the newest one at the fire."`
	Payload         *string `placeholder:"JSON|@FILE" help:"Payload of the run, with --start-run: JSON, with expressions in its texts such as $${fire_time}, $${cron_id} and $${attempt}."`
	Scope           *string `placeholder:"SCOPE" help:"Scope of the run, with --start-run."`
	ScopeID         *string `placeholder:"ID" help:"Which one of the scope, with --start-run."`
	RunMetadata     string  `placeholder:"JSON|@FILE" help:"Searchable attributes of the run, with --start-run, beside those that say which fire it is."`
}

// apply puts the flags into a target, where it is a run.
func (f *startRunFlags) apply(a *app, t *progressorv1.StartRunTarget) (err error) {
	if t == nil {
		if f.TemplateVersion != nil || f.Payload != nil || f.Scope != nil || f.ScopeID != nil || f.RunMetadata != "" {
			return usageError(errors.New("--template-version, --payload, --scope, --scope-id and --run-metadata go with --start-run"))
		}
		return nil
	}
	set(&t.Version, f.TemplateVersion)
	set(&t.Scope, f.Scope)
	set(&t.ScopeId, f.ScopeID)
	if f.Payload != nil {
		if t.PayloadTemplate, err = a.jsonValue("--payload", *f.Payload); err != nil {
			return err
		}
	}
	if f.RunMetadata != "" {
		t.Metadata, err = a.attributes("--run-metadata", f.RunMetadata)
	}
	return err
}

// showStartRun tells of which template a run is, and with what it starts.
func showStartRun(t *progressorv1.StartRunTarget) string {
	text := "start a run of " + t.GetType()
	if t.GetVersion() != 0 {
		text += " version " + showID(int64(t.GetVersion()))
	}
	if t.GetScope() != "" || t.GetScopeId() != "" {
		text += " for " + t.GetScope() + "/" + t.GetScopeId()
	}
	if t.GetPayloadTemplate() != nil {
		payload, err := protojson.Marshal(t.GetPayloadTemplate())
		if err == nil {
			text += " with " + showPayload(payload, cellLimit)
		}
	}
	return text
}
