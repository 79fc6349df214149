package flow

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// maxJobTimeout is the maximum timeout of every job.
const maxJobTimeout = 365 * 24 * time.Hour

func (c *compiler) job(s *Step, job *progressorv1.JobAction) {
	if s.Source.GetTimeout().AsDuration() > maxJobTimeout {
		c.add(s.path("timeout"), "must be at most 365 days if the step is a job")
	}
	c.options(s.path("job.options"), job.GetOptions())
}

// options rejects job options that a flow defines elsewhere (the start time, uniqueness and the
// retention of results), and checks the others.
func (c *compiler) options(path string, o *progressorv1.JobOptions) {
	if o.GetRunTime() != nil {
		c.add(path+".run_time", "is not allowed in a flow: add a delay step before this one")
	}
	if o.GetUnique() != nil {
		c.add(path+".unique",
			"is not allowed in a flow, where a step has one job: set dedupe_keys and concurrency_policy of the "+
				"template")
	}
	if o.GetKeepResult() {
		c.add(path+".keep_result", "is not allowed in a flow, which keeps the result of each step")
	}
	if n := o.GetWorkers().GetCount(); n > 1 {
		c.add(path+".workers.count",
			"must be at most 1 (got %d): one worker runs a step; for several workers, use for_each with one "+
				"item per worker", n)
	}
	if d := o.GetStartDeadline(); d != nil && d.AsDuration() == 0 { // CheckRules rejects negative values
		c.add(path+".start_deadline", durations.Positive)
	}
	if o.GetStartDeadline() != nil && o.GetWorkers() != nil {
		c.add(path+".start_deadline",
			"must not be set together with workers: a job for several workers has no start deadline")
	}
	c.metadata(path+".metadata", o.GetMetadata())
}

func (c *compiler) metadata(path string, m *structpb.Struct) {
	if m == nil {
		return
	}
	if !c.plain(path, structpb.NewStructValue(m), 0) {
		return
	}
	text, err := protojson.Marshal(m)
	var compact bytes.Buffer // protojson writes spaces in some builds
	if err == nil {
		err = json.Compact(&compact, text)
	}
	if err != nil {
		c.add(path, "is not JSON: %s", err)
	} else if compact.Len() > process.MaxMetadataBytes {
		c.add(path, "must have at most %d bytes of JSON (got %d)", process.MaxMetadataBytes, compact.Len())
	}
}

func (c *compiler) wait(s *Step, w *progressorv1.WaitAction) {
	s.answer = c.schema(s.path("wait.result_schema"), w.GetResultSchema())
	succeed := w.GetDueAction() == progressorv1.WaitAction_DUE_ACTION_SUCCEED
	if w.GetDueAction() != progressorv1.WaitAction_DUE_ACTION_UNSPECIFIED && w.GetDue().AsDuration() == 0 {
		c.add(s.path("wait.due_action"), "requires due, such as due: 24h")
	}
	if w.GetDueResult() != nil && !c.plain(s.path("wait.due_result"), w.GetDueResult(), 0) {
		return
	}
	switch {
	case !succeed && w.GetDueResult() != nil:
		c.add(s.path("wait.due_result"), "is allowed only with due_action: SUCCEED")
	case succeed && s.answer != nil:
		for _, p := range s.answer.check("due_result", w.GetDueResult()) {
			where := strings.TrimPrefix(p.Path, "due_result")
			c.add(s.path("wait.due_result")+where, "must match result_schema: %s", p.Message)
		}
	}
}

// run rejects a template that would start itself endlessly, because neither s nor any step before
// it can be skipped.
func (c *compiler) run(s *Step, r *progressorv1.RunAction) {
	if r.GetType() != c.template.Source.GetType() || c.before == nil {
		return
	}
	for i := range c.template.Steps {
		other := c.template.Steps[i].Source
		if (i == s.Index || c.before[s.Index].has(i)) && (other.GetCondition() != "" || other.GetForEach() != nil) {
			return
		}
	}
	c.add(s.path("run.type"),
		"must not be this template, which would start itself endlessly: give the step a condition")
}

func (c *compiler) compensation(s *Step) {
	undo := s.Source.GetCompensation()
	if undo == nil {
		return
	}
	c.options(s.path("compensation.options"), undo.GetOptions())
	own := func(j *progressorv1.JobAction) (namespace, name string) {
		if namespace = j.GetNamespace(); namespace == "" {
			namespace = c.template.Source.GetNamespace()
		}
		if name = j.GetName(); name == "" {
			name = s.ID
		}
		return namespace, name
	}
	if s.Action != ActionJob {
		return
	}
	namespace, name := own(undo)
	if n, other := own(s.Source.GetJob()); n == namespace && other == name {
		c.add(s.path("compensation.name"),
			"must not be %s, the job of the step itself: name another job, such as undo_%s", name, s.ID)
	}
}
