package jobs_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func resultAnswer(r *progressorv1.Result) engine.LeaseAnswer {
	return engine.LeaseAnswer{
		Response: &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: r}},
	}
}

func jobAnswer(value string) engine.LeaseAnswer {
	return resultAnswer(&progressorv1.Result{JobResult: structpb.NewStringValue(value)})
}

func processGives(response string) engine.LeaseAnswer {
	return resultAnswer(&progressorv1.Result{Response: []byte(response)})
}

func breaks(reason string, details float64) engine.LeaseAnswer {
	return engine.LeaseAnswer{Response: &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{
		Failure: &progressorv1.Failure{Reason: reason, Message: "a\x00b", Details: structpb.NewNumberValue(details)},
	}}}
}

func refuses(reason string) engine.LeaseAnswer {
	return engine.LeaseAnswer{
		Response: &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Rejection{Rejection: &progressorv1.Rejection{Reason: reason}},
		},
	}
}

// A repeated answer that is equal to the stored one is confirmed. A different answer with the same
// token is rejected as lost and changes nothing. A result that is not kept cannot be compared.
func TestAnswersAgain(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	keeps := &progressorv1.JobOptions{KeepResult: true}
	message := "stopped"
	for name, c := range map[string]struct {
		isProcess    bool
		options      *progressorv1.JobOptions
		first        engine.LeaseAnswer
		same, others []engine.LeaseAnswer
	}{
		"result": {
			options: keeps, first: jobAnswer("first"),
			others: []engine.LeaseAnswer{jobAnswer("second"), breaks("x", 1), {Acknowledged: &message}},
		},
		"forgotten": {
			first: jobAnswer("first"), same: []engine.LeaseAnswer{jobAnswer("second")},
			others: []engine.LeaseAnswer{breaks("x", 1), refuses("x")},
		},
		"failure": {
			options: keeps, first: breaks("x", 1.5),
			others: []engine.LeaseAnswer{breaks("y", 1.5), breaks("x", 2), jobAnswer("first"), refuses("x")},
		},
		"refused job": {
			first: refuses("x"), others: []engine.LeaseAnswer{refuses("y"), breaks("x", 1), jobAnswer("first")},
		},
		"acknowledged": {
			first:  engine.LeaseAnswer{Acknowledged: &message},
			others: []engine.LeaseAnswer{{Acknowledged: new(string)}, jobAnswer("first")},
		},
		"response": {
			isProcess: true, first: processGives("first"),
			others: []engine.LeaseAnswer{processGives("second"), processGives(""), breaks("x", 1), refuses("x")},
		},
		"broken process": {
			isProcess: true, first: breaks("x", 1), others: []engine.LeaseAnswer{breaks("x", 2), processGives("first")},
		},
	} {
		if c.isProcess {
			_, err := n.Start(t.Context(), engine.StartParams{Key: key("pull", name), Accepted: true})
			must(t, err)
		} else {
			n.enqueue(t, "pull", name, c.options)
		}
		token := n.leaseOne(t, "w").GetLeaseToken()
		for _, a := range append([]engine.LeaseAnswer{c.first, c.first}, c.same...) {
			if err := n.CompleteLease(t.Context(), token, a); err != nil {
				t.Errorf("%s: %v: %v", name, a, err)
			}
		}
		for _, a := range c.others {
			if err := n.CompleteLease(t.Context(), token, a); !errors.Is(err, process.ErrFenced) {
				t.Errorf("%s: another answer, %v: %v", name, a, err)
			}
		}
		must(t, n.CompleteLease(t.Context(), token, c.first))
	}
}

// A result is compared only with the stored result of its own attempt. The stored result no longer
// exists after a retry or a fetch.
func TestAnswerAgainAfterOthers(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{KeepResult: true})
	first := n.leaseOne(t, "w").GetLeaseToken()
	must(t, n.CompleteLease(t.Context(), first, jobAnswer("first")))
	_, err := n.Retry(t.Context(), key("pull", "j"), true)
	must(t, err)
	must(t, n.CompleteLease(t.Context(), first, jobAnswer("first")))
	second := n.leaseOne(t, "w").GetLeaseToken()
	must(t, n.CompleteLease(t.Context(), second, jobAnswer("second")))
	must(t, n.CompleteLease(t.Context(), first, jobAnswer("first")))
	_, err = n.FetchResult(t.Context(), key("pull", "j"), 0)
	must(t, err)
	must(t, n.CompleteLease(t.Context(), second, jobAnswer("second")))
	if err := n.CompleteLease(t.Context(), second, breaks("x", 1)); !errors.Is(err, process.ErrFenced) {
		t.Error(err)
	}
}

// A failure is remembered until the next attempt begins. A released attempt has not failed.
func TestFailureAgain(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	lost := func(token string, a engine.LeaseAnswer) {
		t.Helper()
		if err := n.CompleteLease(t.Context(), token, a); !errors.Is(err, process.ErrFenced) {
			t.Errorf("%v: %v", a, err)
		}
	}
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{MaxRetry: 1, Backoff: soon})
	first := n.leaseOne(t, "w")
	for range 2 {
		must(t, n.CompleteLease(t.Context(), first.GetLeaseToken(), breaks("x", 1)))
	}
	lost(first.GetLeaseToken(), breaks("y", 1))
	lost(first.GetLeaseToken(), jobAnswer("done"))
	second := n.leaseOne(t, "w")
	if f := second.GetJob().GetFailures(); len(f) != 1 {
		t.Errorf("%v", f)
	}
	lost(first.GetLeaseToken(), breaks("x", 1))
	must(t, n.ReleaseLeases(t.Context(), []string{second.GetLeaseToken()}, 0))
	lost(second.GetLeaseToken(), breaks("x", 1))
	lost(second.GetLeaseToken(), breaks("", 0))

	n.enqueue(t, "pull", "cancelled", &progressorv1.JobOptions{MaxRetry: 1, Backoff: soon, Priority: -1})
	l := n.leaseOne(t, "w")
	_, err := n.Cancel(t.Context(), key("pull", "cancelled"), "", process.Actor{})
	must(t, err)
	for range 2 { // it is not retried
		must(t, n.CompleteLease(t.Context(), l.GetLeaseToken(), breaks("x", 1)))
	}
	n.job(t, "pull", "cancelled", cancelled)
}

// A worker that defers the response of a call can repeat its answer, even after the reply. A reply
// to the task itself can also be repeated.
func TestDeferredAnswersAgain(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	k := key("pull", "p")
	_, err := n.Start(t.Context(), engine.StartParams{Key: k, Accepted: true})
	must(t, err)
	must(t, n.CompleteLease(t.Context(), n.leaseOne(t, "w").GetLeaseToken(), processGives("")))
	call := func() *progressorv1.Lease {
		t.Helper()
		_, err := n.Call(t.Context(), engine.CallParams{Key: k, Accepted: true})
		must(t, err)
		return n.leaseOne(t, "w")
	}
	defers := resultAnswer(&progressorv1.Result{DeferResponse: true})
	first := call()
	for range 2 {
		must(t, n.CompleteLease(t.Context(), first.GetLeaseToken(), defers))
	}
	if err := n.CompleteLease(t.Context(), first.GetLeaseToken(), breaks("x", 1)); !errors.Is(err, process.ErrFenced) {
		t.Error(err)
	}
	second := call()
	replies := resultAnswer(&progressorv1.Result{Replies: []*progressorv1.Reply{
		{TaskId: first.GetRequest().GetTaskId(), Response: []byte("late")},
		{TaskId: second.GetRequest().GetTaskId(), Rejection: &progressorv1.Rejection{Reason: "no"}},
	}})
	for range 2 {
		must(t, n.CompleteLease(t.Context(), second.GetLeaseToken(), replies))
	}
	must(t, n.CompleteLease(t.Context(), first.GetLeaseToken(), defers))
}
