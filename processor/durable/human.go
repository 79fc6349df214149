package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// ReasonTimeout is the reason of the error that Human returns if no one answers in time.
const ReasonTimeout = process.ReasonTimeout

// HumanOption configures Human and Ask.
type HumanOption interface{ setHuman(*humanOptions) }

type humanOptions struct {
	namespace string
	title     string
	assignees []string
	due       *time.Duration
	dueAnswer any
	answers   bool // dueAnswer is set
	about     any
	schema    any
}

func (in InOption) setHuman(o *humanOptions) { o.namespace = in.namespace }

type humanOption func(*humanOptions)

func (f humanOption) setHuman(o *humanOptions) { f(o) }

// Title sets the question that the inbox shows. The default is the name passed to Human or Ask.
func Title(text string) HumanOption {
	return humanOption(func(o *humanOptions) { o.title = text })
}

// Assignees sets who may answer, if the engine authenticates clients: user:ISSUER#NAME, key:ID,
// cert:URI, group:NAME, or the name of a group. By default, every client with the permission
// wait.answer may answer.
func Assignees(names ...string) HumanOption {
	return humanOption(func(o *humanOptions) { o.assignees = names })
}

// Due limits how long the question waits. After that, Human returns an error with ReasonTimeout, or
// the value of DueAnswer. By default, there is no limit.
func Due(d time.Duration) HumanOption {
	return humanOption(func(o *humanOptions) { o.due = &d })
}

// DueAnswer sets the answer for the case that no one answers in time. It requires Due.
func DueAnswer(v any) HumanOption {
	return humanOption(func(o *humanOptions) { o.dueAnswer, o.answers = v, true })
}

// About sets what the inbox shows with the question, as JSON.
func About(v any) HumanOption {
	return humanOption(func(o *humanOptions) { o.about = v })
}

// AnswerSchema sets the JSON Schema of the answer, from which the inbox builds a form. The schema
// is any value that encodes to a JSON object. The default follows from the type of the answer. An
// empty object accepts every answer.
func AnswerSchema(schema any) HumanOption {
	return humanOption(func(o *humanOptions) { o.schema = schema })
}

// Human asks a person and waits for the answer, which is decoded from JSON. It returns a *StepError
// if no one answered in time (ReasonTimeout), if the answer is a failure (with its reason), if the
// question was cancelled (ReasonChildCancelled), or if the answer cannot be decoded
// (ReasonBadValue).
//
//	ok, err := durable.Human[bool](ctx, "release", durable.Due(48*time.Hour))
func Human[Out any](ctx Ctx, name string, opts ...HumanOption) (Out, error) {
	return Ask[Out](ctx, name, opts...).Get()
}

// Ask is like Human, but does not wait. Its result can be a source of First. People answer in the
// inbox of the console, with progressor run complete, or with CompleteStep, as they answer the
// waits of flows. An answer that does not match the schema is rejected, and the question stays
// open.
//
// The question is a run without a template. Its only step is named "answer". Its ID has the same
// form as that of a run started by Flow, and it is also started exactly once. Future.Cancel
// withdraws the question. If the function returns an error or is cancelled, its open questions are
// withdrawn. If it returns a value, they stay open.
func Ask[Out any](ctx Ctx, name string, opts ...HumanOption) *Future[Out] {
	b := ctx.branch
	full := b.name(kindChild, name)
	o := humanOptions{title: name}
	for _, opt := range opts {
		opt.setHuman(&o)
	}
	if e, ok := b.owner.journal.find(kindChild, full); ok {
		run := b.recordedChild(e, childKey{Namespace: o.namespace, ProcessID: process.FlowPrefix, Run: runQuestion})
		return &Future[Out]{branch: b, name: full, child: run, isQuestion: true}
	}
	if o.schema == nil {
		o.schema = schemaFor[Out]()
	}
	wait, payload, err := o.wait()
	if err == nil && o.answers {
		err = checkDueAnswer[Out](wait)
	}
	if err == nil {
		err = checkSchema(wait)
	}
	if err != nil {
		b.owner.misuse("run %s: %s", full, err)
	}
	run := b.owner.newChild(o.namespace, full)
	run.Run = runQuestion
	f := startRun[Out](b, full, run, &progressorv1.StartRunCommand{Wait: wait, Payload: payload})
	f.isQuestion = true
	return f
}

// checkDueAnswer returns an error if the value of DueAnswer does not have the type Out.
func checkDueAnswer[Out any](w *progressorv1.WaitAction) error {
	text, err := protojson.Marshal(w.GetDueResult())
	if err == nil {
		err = json.Unmarshal(text, new(Out))
	}
	if err != nil {
		return fmt.Errorf("the value of DueAnswer cannot be decoded as the type of the answer: %w", err)
	}
	return nil
}

// wait returns the wait of a question, and its payload.
func (o *humanOptions) wait() (*progressorv1.WaitAction, *structpb.Value, error) {
	w := &progressorv1.WaitAction{Kind: progressorv1.WaitAction_KIND_HUMAN, Title: literal(o.title)}
	for _, name := range o.assignees {
		w.Assignees = append(w.Assignees, literal(name))
	}
	if o.due != nil {
		w.Due = durationpb.New(max(*o.due, time.Millisecond)) // 0 would mean no limit
	}
	var err error
	if o.answers && o.due == nil {
		return nil, nil, errors.New("DueAnswer requires Due")
	}
	if o.answers {
		w.DueAction = progressorv1.WaitAction_DUE_ACTION_SUCCEED
		if w.DueResult, err = protoOf(o.dueAnswer); err != nil {
			return nil, nil, fmt.Errorf("the value of DueAnswer %w", err)
		}
	}
	if o.schema != nil {
		text, err := json.Marshal(o.schema)
		if err != nil {
			return nil, nil, err
		}
		w.ResultSchema = &structpb.Struct{}
		if err := protojson.Unmarshal(text, w.ResultSchema); err != nil {
			return nil, nil, errors.New("the schema must be a JSON object")
		}
	}
	payload, err := protoOf(o.about)
	if err != nil {
		err = fmt.Errorf("the value of About %w", err)
	}
	return w, payload, err
}

// literal returns the template of a text without expressions.
func literal(text string) string { return strings.ReplaceAll(text, "${", "$${") }
