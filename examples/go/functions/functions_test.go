package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
)

const day = 24 * time.Hour

// service is a fake of another service. A repeated request with the same key has no effect.
type service struct {
	mu      sync.Mutex
	answers map[string]string // by key
	effects []string
	fails   map[string]int // remaining failures of each request
}

func (s *service) send(c context.Context, what string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails[what] > 0 {
		s.fails[what]--
		return "", errors.New("the service is down")
	}
	key := durable.StepKey(c)
	if _, ok := s.answers[key]; !ok {
		s.answers[key] = "done: " + what
		if what == "look-up my lost tea" {
			s.answers[key] = "it was lost"
		}
		s.effects = append(s.effects, what)
	}
	return s.answers[key], nil
}

// No matter where a function is killed, its effects and its outcome are the same.
func TestFunctions(t *testing.T) {
	importing := func(s *service) processor.Processor { return newImport(s.send) }
	expense := func(s *service) processor.Processor { return newExpense(s.send) }
	agent := func(s *service) processor.Processor { return newAgent(answerByRule, s.send) }
	purchase := func(s *service) processor.Processor { return newPurchase(s.send) }
	subscription := func(s *service) processor.Processor { return newSubscription(s.send) }
	claim := Expense{Employee: "eve", Amount: 70, Approvers: []string{"ann", "bob"}}
	decide := func(by string, approve bool) durabletest.Action {
		return durabletest.Call("decide", Decision{By: by, Approve: approve})
	}
	for name, test := range map[string]struct {
		function func(*service) processor.Processor
		input    any
		fails    map[string]int
		script   []durabletest.Action
		want     string // the effects, sorted
	}{
		"import": {importing, Import{Files: []string{"a", "b", "c"}}, map[string]int{"load a": 2, "check b": 99},
			[]durabletest.Action{durabletest.Advance(time.Minute)}, "check a, check c, load a, load c"},
		"expense approved by the first approver": {expense, claim, nil,
			[]durabletest.Action{decide("ann", true)}, "ask ann, pay eve"},
		"expense refused by the second approver": {expense, claim, nil,
			[]durabletest.Action{durabletest.Advance(2 * day), decide("bob", false)}, "ask ann, ask bob, refuse eve"},
		"expense without a decision": {expense, claim, nil,
			[]durabletest.Action{durabletest.Advance(4 * day)}, "ask ann, ask bob"},
		"agent": {agent, Question{Text: "my tea"}, nil, nil, "look-up my tea"},
		"agent that may refund": {agent, Question{Text: "my lost tea"}, nil,
			[]durabletest.Action{durabletest.Call("permit", Permission{Allow: true})},
			"look-up my lost tea, refund my lost tea"},
		"agent that may not refund": {agent, Question{Text: "my lost tea"}, nil,
			[]durabletest.Action{durabletest.Call("permit", Permission{})}, "look-up my lost tea"},
		"purchase that is released": {purchase, Purchase{Item: "desk", Price: 900}, nil,
			[]durabletest.Action{durabletest.EndChild("release", true)}, "buy desk"},
		"purchase that is refused": {purchase, Purchase{Item: "desk", Price: 900}, nil,
			[]durabletest.Action{durabletest.EndChild("release", false)}, ""},
		"purchase that is not released": {purchase, Purchase{Item: "desk", Price: 900}, nil,
			[]durabletest.Action{durabletest.FailRun("release", durable.ReasonTimeout, "no answer")}, ""},
		"purchase that is cheap": {purchase, Purchase{Item: "pen", Price: 2}, nil, nil, "buy pen"},
		"subscription": {subscription, Subscription{Customer: "eve", Plan: "s"}, map[string]int{"charge eve for m": 3},
			[]durabletest.Action{
				durabletest.Advance(11*month + day), durabletest.Call("change", Change{Plan: "m"}),
				durabletest.Advance(month), durabletest.Call("change", Change{}), durabletest.Advance(month),
			},
			"charge eve for m" + strings.Repeat(", charge eve for s", 12)},
	} {
		t.Run(name, func(t *testing.T) {
			durabletest.KillEverywhere(t, func(t *testing.T) processor.Processor {
				s := &service{answers: map[string]string{}, fails: map[string]int{}}
				for what, n := range test.fails {
					s.fails[what] = n
				}
				t.Cleanup(func() {
					slices.Sort(s.effects)
					if got := strings.Join(s.effects, ", "); got != test.want {
						t.Errorf("effects: %s\nwant: %s", got, test.want)
					}
				})
				return test.function(s)
			}, test.input, test.script...)
		})
	}
}
