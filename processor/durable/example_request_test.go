package durable_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
)

type Loan struct {
	Amount int `json:"amount"`
}

type Decision struct {
	Approved bool `json:"approved"`
}

// desk decides about a number of loans. Each decision takes an hour.
func desk(ctx durable.Ctx, number int) (int, error) {
	loans, approved := durable.Requests[Loan, Decision](ctx, "loan"), 0
	for range number {
		loan := loans.Next()
		score, err := durable.Step(ctx, "score", func(c context.Context) (int, error) {
			return scoreOf(c, loan.Args)
		}, durable.Retry(5, time.Second))
		if err != nil {
			loan.Reject(processor.Reject("no_score", "the score is not available"))
			continue
		}
		durable.Sleep(ctx, "second-look", time.Hour)
		loan.Reply(Decision{Approved: score > 600})
		if score > 600 {
			approved++
		}
	}
	return approved, nil
}

func scoreOf(_ context.Context, loan Loan) (int, error) {
	if loan.Amount < 0 {
		return 0, processor.Reject("negative", "negative")
	}
	return 1000 - loan.Amount, nil
}

// Wherever the function is killed, each loan gets one decision.
func TestDesk(t *testing.T) {
	durabletest.KillEverywhere(t, func(*testing.T) processor.Processor { return durable.Func("desk", desk) }, 3,
		durabletest.Call("loan", Loan{200}), durabletest.Call("loan", Loan{-1}), durabletest.Call("loan", Loan{900}),
		durabletest.Advance(3*time.Hour))
}

// docs/functions.md contains the code unchanged.
func TestDeskInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/functions.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_request_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "func desk(")
	code, _, _ = strings.Cut(code, "\n}\n")
	if !strings.Contains(string(page), "func desk("+code+"\n}\n") {
		t.Error("docs/functions.md does not contain the function desk")
	}
}
