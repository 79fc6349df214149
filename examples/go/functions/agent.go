package main

import (
	"context"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
)

// Question is the input of the agent.
type Question struct {
	Text string `json:"text"`
}

// Message is a part of the conversation: a question of the user, a request to use a tool, the
// result of a tool, or the answer.
type Message struct {
	Role string `json:"role"` // user, tool or assistant
	Text string `json:"text"`
	Tool string `json:"tool,omitempty"` // the tool that the assistant wants to use, with Text as its input
}

// model returns the next message of the assistant.
type model func(c context.Context, conversation []Message) (Message, error)

// Permission is the call of the person who permits a refund.
type Permission struct {
	Allow bool `json:"allow"`
}

const maxTurns = 20

// newAgent returns a function that lets a model use tools until it has an answer. Each answer of
// the model and each use of a tool is a step: a crash repeats at most the step that was running.
// The tool "refund" waits until a person permits it.
func newAgent(think model, use send) processor.Processor {
	return durable.Func("agent", func(ctx durable.Ctx, in Question) (string, error) {
		asks := false // the model has asked for a refund, and no person has answered yet
		permissions := durable.Calls(ctx, "permit", durable.Accept(func(p Permission) (Permission, error) {
			if !asks {
				return p, processor.Reject("not_asked", "the agent does not wait for a permission")
			}
			return p, nil
		}))
		conversation := []Message{{Role: "user", Text: in.Text}}
		for range maxTurns {
			next, err := durable.Step(ctx, "think", func(c context.Context) (Message, error) {
				return think(c, conversation)
			}, durable.Retry(5, time.Second))
			if err != nil {
				return "", err
			}
			conversation = append(conversation, next)
			durable.Publish(ctx, conversation)
			if next.Tool == "" {
				return next.Text, nil
			}
			result := Message{Role: "tool", Text: "a person has refused this"}
			asks = next.Tool == "refund"
			allowed := !asks || permissions.Next().Allow
			asks = false
			if allowed {
				result.Text, err = durable.Step(ctx, "use", func(c context.Context) (string, error) {
					return use(c, next.Tool+" "+next.Text)
				}, durable.Retry(5, time.Second))
				if err != nil {
					result.Text = "error: " + err.Error() // the model may try something else
				}
			}
			conversation = append(conversation, result)
		}
		return "", processor.Reject("no_answer", "the model has no answer after %d turns", maxTurns)
	})
}

// answerByRule takes the place of a language model. It looks up an order, refunds it if it was
// lost, and then answers.
func answerByRule(_ context.Context, conversation []Message) (Message, error) {
	last := conversation[len(conversation)-1]
	switch {
	case last.Role == "user":
		return Message{Role: "assistant", Tool: "look-up", Text: last.Text}, nil
	case strings.Contains(last.Text, "lost"):
		return Message{Role: "assistant", Tool: "refund", Text: conversation[0].Text}, nil
	default:
		return Message{Role: "assistant", Text: "The result is: " + last.Text}, nil
	}
}
