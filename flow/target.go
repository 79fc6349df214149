package flow

import (
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"google.golang.org/protobuf/types/known/structpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Target is the compiled target of a cron that starts runs.
type Target struct {
	Source  *progressorv1.StartRunTarget
	payload *value
}

// CompileTarget checks the target of a cron that starts runs. If there are problems, it returns
// them and no Target.
func CompileTarget(t *progressorv1.StartRunTarget) (*Target, []Problem) {
	c := newCompiler(nil)
	c.contract(t)
	c.metadata("metadata", t.GetMetadata())
	target := &Target{Source: t}
	if t.GetPayloadTemplate() != nil {
		target.payload, _ = c.value("payload_template", t.GetPayloadTemplate(), place{step: noStep, target: true})
	}
	if c.bytes > maxExpressions {
		c.add("payload_template", "expressions must have at most %d bytes in total (got %d)", maxExpressions, c.bytes)
	}
	if problems := c.all(); len(problems) > 0 {
		return nil, problems
	}
	return target, nil
}

// Fire is a fire of a cron, with the values that its payload template can use.
type Fire struct {
	CronID  string
	Time    time.Time
	Attempt int32 // from 1
}

// Payload returns the payload of the run that a fire starts. It is null if the target has none.
func (t *Target) Payload(f Fire) (*structpb.Value, error) {
	switch {
	case t.payload == nil:
		return null, nil
	case t.payload.root.constant != nil:
		return t.payload.root.constant, nil
	}
	return evaluate(f).node(&t.payload.root)
}

func (f Fire) lookup(name string) (any, bool, error) {
	switch name {
	case "cron_id":
		return types.String(f.CronID), true, nil
	case "fire_time":
		return types.Timestamp{Time: f.Time}, true, nil
	case "attempt":
		return types.Int(f.Attempt), true, nil
	}
	return nil, false, nil
}

func (f Fire) nativeOf(v *structpb.Value) ref.Val { return native(v) }
