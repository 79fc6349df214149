package flow

import (
	"cmp"

	"google.golang.org/protobuf/proto"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Same reports whether two templates are equal. It ignores the version, the times, and the field
// enabled, which EnableTemplate and DisableTemplate change without a new version. Unset fields are
// equal to their defaults, so that a response of GetTemplate can be put again.
func Same(a, b *progressorv1.Template) bool { return proto.Equal(filled(a), filled(b)) }

// filled returns a copy of a template with its defaults, without the fields that Same ignores.
func filled(t *progressorv1.Template) *progressorv1.Template {
	t = proto.CloneOf(t)
	t.Version, t.CreatedTime, t.UpdatedTime, t.Enabled = 0, nil, nil, nil
	setTrue(&t.Repeatable)
	setTrue(&t.Schedulable)
	t.ConcurrencyPolicy = cmp.Or(t.ConcurrencyPolicy, progressorv1.ScopePolicy_SCOPE_POLICY_ALLOW)
	t.StepOrder = cmp.Or(t.StepOrder, progressorv1.StepOrder_STEP_ORDER_LINEAR)
	for _, s := range t.GetSteps() {
		setTrue(&s.Cancelable)
		s.Weight = max(s.Weight, 1)
		s.JoinRule = cmp.Or(s.JoinRule, progressorv1.JoinRule_JOIN_RULE_NONE_FAILED)
		if w := s.GetWait(); w != nil {
			w.Kind = cmp.Or(w.Kind, progressorv1.WaitAction_KIND_EXTERNAL)
			if w.DueAction == 0 && w.GetDue().AsDuration() > 0 {
				w.DueAction = progressorv1.WaitAction_DUE_ACTION_FAIL
			}
		}
	}
	return t
}

func setTrue(b **bool) {
	if *b == nil {
		*b = proto.Bool(true)
	}
}
