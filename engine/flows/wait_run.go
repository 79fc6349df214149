package flows

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	// waitType is the type of runs that have no template, but one wait. No template can have it.
	waitType = "~wait"
	// waitStep is the ID of the only step of such a run.
	waitStep = "answer"
)

// newWaitTemplate returns a template for a run that only has this wait. Its errors are
// *process.InvalidError with fields such as wait.title.
func newWaitTemplate(w *progressorv1.WaitAction) (*template, error) {
	source := &progressorv1.Template{
		Namespace: "wait", Type: "wait", Version: 1, Steps: []*progressorv1.StepTemplate{{
			StepId: waitStep, Action: &progressorv1.StepTemplate_Wait{Wait: w},
		}},
	}
	compiled, problems := flow.Compile(source)
	if len(problems) > 0 {
		for i := range problems {
			problems[i].Path = strings.TrimPrefix(problems[i].Path, "steps[0].")
		}
		return nil, invalid(problems)
	}
	source.Type = waitType
	t := &template{Template: compiled, enabled: true}
	t.plan = compiled.Plan(func(int32) time.Duration { return 0 })
	return t, nil
}

// templateOfWait returns a template for a run with this stored wait. It is not cached, because most
// waits differ, for example in their titles. Compiling it takes 0.1 ms, or 0.6 ms with a schema.
func templateOfWait(stored []byte) (*template, error) {
	w := &progressorv1.WaitAction{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(stored, w); err != nil {
		return nil, fmt.Errorf("the wait of the run: %w", err)
	}
	return newWaitTemplate(w)
}

// anyWait returns a template with the step of all runs that have no template.
var anyWait = sync.OnceValues(func() (*template, error) { return newWaitTemplate(&progressorv1.WaitAction{}) })
