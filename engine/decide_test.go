package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

func claimOf(taskType process.TaskType, attempt int32) *storage.Claim {
	return &storage.Claim{
		Namespace: "ns", ProcessID: "p", TaskID: 7, TaskType: taskType, Attempt: attempt, FencingToken: 70,
		LastEventID: 41, IdempotencyKey: "k",
	}
}

// policy returns a retry policy with distinguishable waits.
func policy() process.RetryPolicy {
	return process.RetryPolicy{
		Initial: time.Second, Coefficient: 2, Max: 3 * time.Second, MaxAttempts: 3, NonRetryable: []string{"hopeless"},
		JitterPortion: 0.5,
	}
}

// middle is the middle of the range of random, which means no jitter.
const middle = 0.5

func respond(b *processor.ResultBuilder) *progressorv1.ProcessResponse {
	response, err := b.Done()
	if err != nil {
		panic(err)
	}
	return response
}

func failure(reason string, final bool) *progressorv1.ProcessResponse {
	return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{
		Failure: &progressorv1.Failure{Reason: reason, Message: "it said " + reason, NonRetryable: final},
	}}
}

func rejection(reason string) *progressorv1.ProcessResponse {
	return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Rejection{
		Rejection: &progressorv1.Rejection{Reason: reason, Message: "no\x00way"},
	}}
}

// decide handles every outcome of an attempt, for every type of task.
func TestDecideOutcomes(t *testing.T) {
	t.Parallel()
	retried := map[process.TaskType]bool{process.TaskTimeout: true, process.TaskNotify: true, process.TaskCancel: true}
	rejectable := map[process.TaskType]bool{
		process.TaskInit: true, process.TaskCall: true, process.TaskRepair: true, process.TaskNotify: true,
	}
	for _, taskType := range process.TaskTypes() {
		failed, failedReason := storage.Failed, ""
		if retried[taskType] {
			failed = storage.Retry
		}
		rejected := storage.Rejected
		if !rejectable[taskType] {
			rejected, failedReason = failed, process.ReasonBadResponse
		}
		for _, tt := range []struct {
			name     string
			response *progressorv1.ProcessResponse
			err      error
			want     storage.Outcome
			reason   string // reason of the failure
		}{
			{
				name: "result", response: respond(processor.Result().Response([]byte("r")).Event([]byte("e"))),
				want: storage.Finished,
			},
			{
				name:     "empty result",
				response: &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{}},
				want:     storage.Finished,
			},
			{name: "complete", response: respond(processor.Result().Complete()), want: storage.Completed},
			{name: "remove", response: respond(processor.Result().Remove()), want: storage.Removed},
			{name: "failure", response: failure("odd", false), want: failed, reason: "odd"},
			{name: "final failure", response: failure("odd", true), want: storage.Failed, reason: "odd"},
			{name: "named failure", response: failure("hopeless", false), want: storage.Failed, reason: "hopeless"},
			{
				name:     "empty failure",
				response: &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{}}, want: failed,
			},
			{name: "rejection", response: rejection("no"), want: rejected, reason: failedReason},
			{
				name:     "empty rejection",
				response: &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Rejection{}},
				want:     rejected, reason: failedReason,
			},
			{
				name: "no outcome", response: &progressorv1.ProcessResponse{}, want: failed,
				reason: process.ReasonBadResponse,
			},
			{name: "nothing", want: failed, reason: process.ReasonBadResponse},
			{
				name: "unreachable", err: &processor.UnreachableError{Err: errors.New("refused")}, want: failed,
				reason: process.ReasonUnavailable,
			},
			{
				name: "lost", err: &processor.LostError{Err: errors.New("reset")}, want: failed,
				reason: process.ReasonUnavailable,
			},
			{
				name: "garbage", err: &processor.BadResponseError{Err: errors.New("not JSON")}, want: failed,
				reason: process.ReasonBadResponse,
			},
			{
				name: "deadline", err: fmt.Errorf("call: %w", context.DeadlineExceeded), want: failed,
				reason: process.ReasonTimeout,
			},
			{
				name: "large history", err: &historyTooLargeError{events: 12_000}, want: failed,
				reason: process.ReasonHistoryTooLarge,
			},
			{name: "grace over", err: errGraceOver, want: storage.Failed, reason: process.ReasonGraceExpired},
			{name: "any error", err: errors.New("odd"), want: failed, reason: processor.ReasonError},
		} {
			d := decide(attemptEnd{
				claim: claimOf(taskType, 1), response: tt.response, err: tt.err, retry: policy(), random: middle,
			})
			want, reason := tt.want, tt.reason
			if taskType == process.TaskRemove { // the processor is not called
				want, reason = storage.Removed, ""
			}
			if taskType == process.TaskCancel && (want == storage.Finished || want == storage.Completed) {
				want = storage.Cancelled
			}
			c := d.completion
			if c.Outcome != want || d.failure.GetReason() != reason {
				t.Errorf("%s, %s: %s, reason %q, want %s, %q", taskType, tt.name, c.Outcome, d.failure.GetReason(),
					want, reason)
			}
			if c.Key != (process.Key{Namespace: "ns", ProcessID: "p"}) || c.TaskID != 7 || c.FencingToken != 70 ||
				c.LastEventID != 41 || c.IdempotencyKey != "k" || c.TaskType != taskType || c.Attempt != 1 {
				t.Errorf("%s, %s: the completion belongs to another attempt: %+v", taskType, tt.name, c)
			}
			if want == storage.Retry && c.RetryAfter != time.Second || want != storage.Retry && c.RetryAfter != 0 {
				t.Errorf("%s, %s: retried after %s", taskType, tt.name, c.RetryAfter)
			}
			if (want == storage.Failed) != (c.Detail != "") && tt.name != "empty failure" {
				t.Errorf("%s, %s: detail %q of a %s", taskType, tt.name, c.Detail, want)
			}
			if (d.failure == nil) != (c.Failure == nil) || (d.rejection == nil) != (c.Rejection == nil) {
				t.Errorf("%s, %s: the stored failure and the returned one differ", taskType, tt.name)
			}
			if c.Promote || c.Uncounted {
				t.Errorf("%s, %s: unexpected fields: %+v", taskType, tt.name, c)
			}
		}
	}
}

func TestDecideRetries(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		attempt int32
		random  float64
		want    storage.Outcome
		after   time.Duration
	}{
		{1, middle, storage.Retry, time.Second},
		{1, 0, storage.Retry, 500 * time.Millisecond}, // jitter of 50%, downwards
		{1, 0.75, storage.Retry, 1250 * time.Millisecond},
		{2, middle, storage.Retry, 2 * time.Second},
		{3, middle, storage.Failed, 0}, // out of attempts
		{4, middle, storage.Failed, 0},
	} {
		d := decide(attemptEnd{
			claim: claimOf(process.TaskTimeout, tt.attempt), response: failure("odd", false), retry: policy(),
			random: tt.random,
		})
		if d.completion.Outcome != tt.want || d.completion.RetryAfter != tt.after {
			t.Errorf("attempt %d, random %v: %s after %s, want %s after %s", tt.attempt, tt.random,
				d.completion.Outcome, d.completion.RetryAfter, tt.want, tt.after)
		}
	}
	long := policy()
	long.MaxAttempts = 10
	d := decide(attemptEnd{
		claim: claimOf(process.TaskNotify, 3), response: failure("odd", false), retry: long, random: middle,
	})
	if d.completion.RetryAfter != 3*time.Second {
		t.Errorf("retried after %s, want the maximum of 3s", d.completion.RetryAfter)
	}
}

// A failed attempt stores no state, events, response or timers.
func TestDecideFailureKeepsNothing(t *testing.T) {
	t.Parallel()
	bad := processor.Result().Event([]byte("e")).AuxState([]byte("state")).Response([]byte("r")).
		SetTimerAfter(time.Second).SetNamedTimerAfter("n",
		time.Second).UnsetNamedTimer("m").Metadata(map[string]any{"a": "b"})
	response := respond(bad)
	response.GetResult().GetMetadata().GetFields()["a"].Kind = nil // a value without a JSON representation
	d := decide(attemptEnd{claim: claimOf(process.TaskCall, 1), response: response, retry: policy()})
	c := d.completion
	if c.Outcome != storage.Failed || d.failure.GetReason() != process.ReasonBadResponse {
		t.Fatalf("%+v", d)
	}
	if c.Events != nil || c.AuxState != nil || c.Metadata != nil || c.Response != nil || c.Timer != nil ||
		c.NamedTimers != nil || c.UnsetNames != nil || c.UnsetTimers {
		t.Errorf("the failed attempt keeps %+v", c)
	}
}

// Commands become messages. Their namespace defaults to that of the sender.
func TestDecideCommands(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	child := &progressorv1.StartCommand{
		ProcessId: "c", Args: []byte("a"), StartTime: timestamppb.New(at), NotifyParentArgs: []byte{},
	}
	response := respond(processor.Result().Metadata(nil).Notify("", "other", []byte("x")).Notify("far", "other", nil).
		Command(&progressorv1.Command{Command: &progressorv1.Command_Start{Start: child}}).Cancel("", "old", "no more"))
	d := decide(attemptEnd{claim: claimOf(process.TaskCall, 1), response: response, retry: policy()})
	sender := d.completion.Key.Namespace
	want := []storage.Message{
		{Kind: storage.MessageNotify, Target: process.Key{Namespace: sender, ProcessID: "other"}, Args: []byte("x")},
		{Kind: storage.MessageNotify, Target: process.Key{Namespace: "far", ProcessID: "other"}},
		{
			Kind: storage.MessageStart, Target: process.Key{Namespace: sender, ProcessID: "c"}, Args: []byte("a"),
			StartTime: at, NotifyParentArgs: []byte{},
		},
		{Kind: storage.MessageCancel, Target: process.Key{Namespace: sender, ProcessID: "old"}, Reason: "no more"},
	}
	if d.completion.Outcome != storage.Finished || !reflect.DeepEqual(d.completion.Messages, want) {
		t.Errorf("%+v\nwant %+v", d.completion.Messages, want)
	}
	bad := respond(processor.Result().Notify("", "~cron/x", nil).AuxState([]byte("state")))
	if d := decide(attemptEnd{
		claim: claimOf(process.TaskCall, 1), response: bad,
	}); d.failure.GetReason() != process.ReasonBadResponse || d.completion.Messages != nil ||
		d.completion.AuxState != nil {
		t.Errorf("a message to the engine's own process: %+v", d)
	}
}

// PostgreSQL does not support NUL characters, so decide replaces them. The client gets the text
// that is stored.
func TestDecideNUL(t *testing.T) {
	t.Parallel()
	broken := &progressorv1.ProcessResponse{
		Outcome: &progressorv1.ProcessResponse_Failure{
			Failure: &progressorv1.Failure{Reason: "a\x00b", Message: "c\x00d\xff"},
		},
	}
	d := decide(attemptEnd{claim: claimOf(process.TaskCall, 1), response: broken})
	if d.failure.GetReason() != "a\uFFFDb" || d.failure.GetMessage() != "c\uFFFDd\uFFFD" ||
		d.completion.Detail != "c\uFFFDd\uFFFD" || strings.Contains(string(d.completion.Failure), `\u0000`) {
		t.Errorf("%+v, stored as %s", d, d.completion.Failure)
	}
	if broken.GetFailure().GetReason() != "a\x00b" {
		t.Error("the response of the processor was modified")
	}
	d = decide(attemptEnd{claim: claimOf(process.TaskCall, 1), response: rejection("no\x00")})
	if d.rejection.GetReason() != "no\uFFFD" || d.rejection.GetMessage() != "no\uFFFDway" ||
		strings.Contains(string(d.completion.Rejection), `\u0000`) {
		t.Errorf("%+v, stored as %s", d, d.completion.Rejection)
	}
	fields := map[string]any{"a\x00": []any{"b\x00", map[string]any{"c": "\x00"}}}
	d = decide(attemptEnd{
		claim:    claimOf(process.TaskCall, 1),
		response: respond(processor.Result().Metadata(fields).EventWith(nil, fields)),
	})
	for _, text := range [][]byte{d.completion.Metadata, d.completion.Events[0].Metadata} {
		if strings.Contains(string(text), `\u0000`) || strings.Count(string(text), "\uFFFD") != 3 {
			t.Errorf("metadata %s", text)
		}
	}
}

func TestDecideLimits(t *testing.T) {
	t.Parallel()
	many := processor.Result()
	for range process.MaxResultEvents + 1 {
		many.Event(nil)
	}
	for name, response := range map[string]*progressorv1.ProcessResponse{
		"events":   respond(many),
		"state":    respond(processor.Result().AuxState(make([]byte, process.MaxPayloadBytes+1))),
		"response": respond(processor.Result().Response(make([]byte, process.MaxPayloadBytes+1))),
		"payload":  respond(processor.Result().Event(make([]byte, process.MaxPayloadBytes+1))),
		"metadata": respond(processor.Result().Metadata(map[string]any{
			"a": strings.Repeat("x", process.MaxMetadataBytes),
		})),
		"failure": failure(strings.Repeat("x", process.MaxPayloadBytes+1), false),
	} {
		d := decide(attemptEnd{claim: claimOf(process.TaskCall, 1), response: response})
		if d.completion.Outcome != storage.Failed || d.failure.GetReason() != process.ReasonBadResponse {
			t.Errorf("%s over its limit: %s, %v", name, d.completion.Outcome, d.failure.GetReason())
		}
	}
	d := decide(attemptEnd{claim: claimOf(process.TaskCall, 1), response: failure(strings.Repeat("ä", 5000), false)})
	if len(d.completion.Detail) > maxDetail+3 || !strings.HasPrefix(d.completion.Detail, "it said ä") {
		t.Errorf("the detail has %d bytes", len(d.completion.Detail))
	}
	if d := decide(attemptEnd{claim: claimOf(process.TaskCall, 1), response: &progressorv1.ProcessResponse{
		Outcome: &progressorv1.ProcessResponse_Failure{Failure: &progressorv1.Failure{Reason: "only a reason"}},
	}}); d.completion.Detail != "only a reason" {
		t.Errorf("detail %q", d.completion.Detail)
	}
}

func TestDecideZombies(t *testing.T) {
	t.Parallel()
	for _, taskType := range process.TaskTypes() {
		for _, tt := range []struct {
			policy       process.ZombiePolicy
			attempt      int32
			nonRetryable string // a reason in RetryPolicy.NonRetryable, or ""
			want         storage.Outcome
		}{
			{process.ZombieRetry, 1, "", storage.Retry},
			{process.ZombieRetry, 2, "", storage.Retry},
			{process.ZombieRetry, 3, "", storage.Failed},
			{process.ZombieRetry, 1, process.ReasonZombie, storage.Failed},
			{process.ZombieError, 1, "", storage.Failed},
		} {
			retry := policy()
			if tt.nonRetryable != "" {
				retry.NonRetryable = []string{tt.nonRetryable}
			}
			z := storage.Zombie{
				Namespace: "ns", ProcessID: "p", TaskID: 7, TaskType: taskType, Attempt: tt.attempt, FencingToken: 70,
			}
			c := decideZombie(z, tt.policy, retry, Kind{}).completion
			if c.Outcome != tt.want || c.RetryAfter != 0 || c.Uncounted || c.FencingToken != 70 || c.Promote {
				t.Errorf("%s, %s, attempt %d: %+v", taskType, tt.policy, tt.attempt, c)
			}
			if tt.want == storage.Failed && c.Detail != "zombie detected" {
				t.Errorf("detail %q", c.Detail)
			}
		}
	}
}

// The release of a task stores a retry that does not count the attempt and has no failure.
func TestReleaseOfATask(t *testing.T) {
	t.Parallel()
	for _, taskType := range process.TaskTypes() {
		c := releaseCompletion(End{Claim: claimOf(taskType, 3)}, Kind{})
		if c.Outcome != storage.Retry || !c.Uncounted || c.RetryAfter != 0 || c.Failure != nil || c.Detail != "" ||
			c.Promote || c.FencingToken != 70 || c.Attempt != 3 {
			t.Errorf("%s: %+v", taskType, c)
		}
	}
}
