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

// targets are the compiled targets of crons that this node has met last.
type targets struct {
	mu  sync.Mutex
	all map[string]*flow.Target // by their protobuf
}

// get compiles a target unless it is known. There are as many at the most as templates.
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

// CheckStart refuses what a cron could not start at a fire: with the template as it is now, and the payload as it would be. A template that
// is disabled is let be: it may be enabled until then. Its errors are *process.InvalidError with paths from the target.
func (f *Flows) CheckStart(ctx context.Context, namespace string, target *progressorv1.StartRunTarget, fire flow.Fire) error {
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
		return &process.InvalidError{Field: field, Message: noTemplate(target.GetType(), target.GetVersion()) + " in namespace " + namespace + ": put it first"}
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

// noTemplate and notSchedulable say why no run starts.
func noTemplate(templateType string, version int32) string {
	if version != 0 {
		return fmt.Sprintf("there is no version %d of template %s", version, templateType)
	}
	return "there is no template " + templateType
}

func notSchedulable(templateType string) string {
	return fmt.Sprintf("template %s lets no cron start it: set schedulable in it to true", templateType)
}

// StartMessage starts the run of a fire. Where its payload cannot be made the run is refused with the reason, which is then the end of the fire.
func (f *Flows) StartMessage(key process.Key, target *progressorv1.StartRunTarget, fire flow.Fire) (storage.Message, error) {
	o := &command{
		Method: methodStart, Actor: process.CronPrefix + fire.CronID, Type: target.GetType(), Version: target.GetVersion(), Scope: target.GetScope(), ScopeID: target.GetScopeId(),
		CronID: fire.CronID, FireTime: fire.Time,
	}
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

// CancelMessage asks a run to end.
func (f *Flows) CancelMessage(key process.Key, reason string) storage.Message {
	return commandTo(key, &command{Method: methodCancel, Reason: reason})
}

// EndOf says how the run of a fire ended; cron.Skipped: another one of its scope has kept it from starting. ok: it has told it.
func (f *Flows) EndOf(child *progressorv1.ChildEnd) (status cron.Status, detail string, ok bool) {
	var a answered
	if err := json.Unmarshal(child.GetResponse(), &a); err != nil {
		return 0, "", false
	}
	switch child.GetStatus() {
	case progressorv1.ProcessStatus_PROCESS_STATUS_UNSPECIFIED: // its process is removed
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
	failure, _ := wire.Failure(a.Failure) // what cannot be read says nothing
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
