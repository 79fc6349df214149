package flows

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/wire"
)

// targets caches the compiled targets of crons that this node has used recently.
type targets struct {
	mu  sync.Mutex
	all map[string]*flow.Target // by their encoded protobuf message
}

// get returns the compiled target, from the cache if possible. The cache holds at most maxTemplates
// entries.
func (c *targets) get(t *progressorv1.StartRunTarget) (*flow.Target, error) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(t)
	if err != nil {
		return nil, err
	}
	key := string(text)
	c.mu.Lock()
	known := c.all[key]
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	compiled, problems := flow.CompileTarget(t)
	if len(problems) > 0 {
		return nil, invalid(problems)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil || len(c.all) >= maxTemplates {
		c.all = map[string]*flow.Target{}
	}
	c.all[key] = compiled
	return compiled, nil
}

// CheckStart returns an error if a cron could not start a run at a fire, with the current template
// and the payload of that fire. It accepts a disabled template, which may be enabled before the
// fire. Its errors are *process.InvalidError with paths relative to the target.
func (f *Flows) CheckStart(
	ctx context.Context, namespace string, target *progressorv1.StartRunTarget, fire flow.Fire,
) error {
	compiled, err := f.targets.get(target)
	if err != nil {
		return err
	}
	t, err := f.template(ctx, namespace, target.GetType(), target.GetVersion())
	switch {
	case errors.Is(err, process.ErrTemplateNotFound):
		field := "type"
		if target.GetVersion() != 0 {
			field = "version"
		}
		return &process.InvalidError{
			Field: field,
			Message: noTemplate(target.GetType(), target.GetVersion()) + " in namespace " + namespace +
				": store it with PutTemplate first",
		}
	case err != nil:
		return err
	case !t.Schedulable():
		return &process.InvalidError{Field: "type", Message: notSchedulable(target.GetType())}
	}
	at := " (at " + fire.Time.UTC().Format(time.RFC3339) + ")"
	payload, err := compiled.Payload(fire)
	if wrong, ok := errors.AsType[*flow.ExpressionError](err); ok {
		return &process.InvalidError{Field: wrong.Path, Message: strings.TrimPrefix(err.Error(), wrong.Path+": ") + at}
	} else if err != nil {
		return &process.InvalidError{Field: "payload_template", Message: err.Error() + at}
	}
	problems := t.CheckPayload(payload)
	if len(problems) == 0 {
		return nil
	}
	for i := range problems {
		problems[i].Path = "payload_template" + strings.TrimPrefix(problems[i].Path, "payload")
	}
	problems[len(problems)-1].Message += at
	return invalid(problems)
}

// noTemplate returns the reason for not starting a run whose template does not exist.
func noTemplate(templateType string, version int32) string {
	if version != 0 {
		return fmt.Sprintf("there is no version %d of template %s", version, templateType)
	}
	return "there is no template " + templateType
}

// notSchedulable returns why a cron cannot start runs of a template.
func notSchedulable(templateType string) string {
	return fmt.Sprintf("crons cannot start template %s: set its field schedulable to true", templateType)
}

// StartMessage returns the message that starts the run of a fire. If the payload cannot be
// computed, the run is rejected with that error, which becomes the result of the fire.
func (f *Flows) StartMessage(
	key process.Key, target *progressorv1.StartRunTarget, fire flow.Fire,
) (storage.Message, error) {
	o := &command{Method: methodStart, Actor: process.CronPrefix + fire.CronID, startFields: startFields{
		Type: target.GetType(), Version: target.GetVersion(), Scope: target.GetScope(), ScopeID: target.GetScopeId(),
		CronID: fire.CronID, FireTime: fire.Time,
	}}
	compiled, err := f.targets.get(target)
	if err == nil {
		o.Payload, err = payloadOf(compiled, fire)
	}
	if err != nil {
		o.Invalid = wire.Plain(err.Error())
	}
	args, err := encode(o)
	return storage.Message{Kind: storage.MessageStart, Target: key, Args: args}, err
}

func payloadOf(t *flow.Target, fire flow.Fire) ([]byte, error) {
	payload, err := t.Payload(fire)
	if err != nil {
		return nil, err
	}
	return resultJSON("payload", payload)
}

// CancelMessage returns the message that requests the cancellation of a run.
func (f *Flows) CancelMessage(key process.Key, reason string) storage.Message {
	return commandTo(key, &command{Method: methodCancel, Reason: reason})
}

// EndOf returns how the run of a fire ended. The status is cron.Skipped if another run of its scope
// prevented the start. ok is false if child does not contain an outcome.
func (f *Flows) EndOf(child *progressorv1.ChildEnd) (status cron.Status, detail string, ok bool) {
	var a reply
	if err := json.Unmarshal(child.GetResponse(), &a); err != nil {
		return 0, "", false
	}
	switch child.GetStatus() {
	case progressorv1.ProcessStatus_PROCESS_STATUS_UNSPECIFIED: // its process was removed
		switch a.Outcome {
		case outcomeExists, outcomeDone:
			return cron.Skipped, a.Message, true
		case outcomeInvalid, outcomeNotFound, outcomeDisabled:
			return cron.Failed, a.Message, true
		}
		return 0, "", false
	case progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED:
	default:
		return 0, "", false
	}
	failure, _ := wire.Failure(a.Failure) // an unreadable failure is ignored
	detail = cmp.Or(failure.GetMessage(), failure.GetReason(), a.Message)
	switch flows.Status(a.Status) {
	case flows.Succeeded:
		return cron.Success, "", true
	case flows.Cancelled:
		return cron.Cancelled, a.Reason, true
	case flows.Expired:
		return cron.Timeout, detail, true
	}
	return cron.Failed, detail, true
}
