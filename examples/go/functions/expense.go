package main

import (
	"context"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
)

// Expense is what an employee wants to be paid.
type Expense struct {
	Employee  string   `json:"employee"`
	Amount    int      `json:"amount"`
	Approvers []string `json:"approvers"`
}

// Decision is the call of an approver.
type Decision struct {
	By      string `json:"by"`
	Approve bool   `json:"approve"`
	Comment string `json:"comment,omitempty"`
}

// Outcome is what the function returns.
type Outcome struct {
	Paid bool   `json:"paid"`
	By   string `json:"by"`
}

// newExpense returns a function that asks the approvers one after the other, and skips those who do
// not answer within two days. Filter on the metadata field waiting_for to find the expenses that
// wait for a person. A decision by anyone else is rejected.
func newExpense(do send) processor.Processor {
	return durable.Func("expense", func(ctx durable.Ctx, in Expense) (Outcome, error) {
		approver := ""
		decisions := durable.Calls(ctx, "decide", durable.Accept(func(d Decision) (string, error) {
			if d.By != approver {
				return "", processor.Reject("not_your_turn", "waits for %q", approver)
			}
			return "thank you", nil
		}))
		for approver = range slices.Values(in.Approvers) {
			waitFor(ctx, approver)
			if err := tell(ctx, do, "ask", approver); err != nil {
				return Outcome{}, err
			}
			late := durable.After(ctx, "decide-within", 48*time.Hour)
			if durable.First(ctx, "decided-or-late", decisions, late) == late {
				continue
			}
			late.Stop()
			decision := decisions.Next()
			approver = ""
			waitFor(ctx, nil)
			if !decision.Approve {
				return Outcome{By: decision.By}, tell(ctx, do, "refuse", in.Employee)
			}
			return Outcome{Paid: true, By: decision.By}, tell(ctx, do, "pay", in.Employee)
		}
		waitFor(ctx, nil)
		return Outcome{}, processor.Reject("no_decision", "nobody decided in time")
	})
}

func waitFor(ctx durable.Ctx, approver any) {
	durable.SetMetadata(ctx, map[string]any{"waiting_for": approver})
}

// tell sends a message in a step.
func tell(ctx durable.Ctx, do send, what, to string) error {
	return durable.Run(ctx, what, func(c context.Context) error {
		_, err := do(c, what+" "+to)
		return err
	}, durable.Retry(5, time.Minute))
}
