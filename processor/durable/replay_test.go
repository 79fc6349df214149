package durable_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// BenchmarkReplay replays a journal of 1,000 steps.
func BenchmarkReplay(b *testing.B) {
	const steps = 1000
	f := function(func(ctx durable.Ctx) (string, error) {
		for range steps + 1 {
			if _, err := durable.Step(ctx, "s", (&effects{}).says("x")); err != nil {
				return "", err
			}
		}
		return "", nil
	})
	p := &progressorv1.Process{FirstEventId: 1, LastEventId: steps + 1}
	for i := range steps + 1 {
		entry := map[string]any{"k": "start", "n": "f", "v": struct{}{}}
		if i > 0 {
			entry = map[string]any{"k": "step", "n": fmt.Sprintf("s#%d", i), "v": "x"}
		}
		if i == 1 {
			entry["n"] = "s"
		}
		payload, err := json.Marshal(entry)
		if err != nil {
			b.Fatal(err)
		}
		p.History = append(p.History, &progressorv1.Event{EventId: int64(i + 1), Payload: payload})
	}
	req := &progressorv1.ProcessRequest{Type: progressorv1.TaskType_TASK_TYPE_CALL, Args: []byte(`{}`), Process: p}
	for b.Loop() {
		resp, err := f.Process(b.Context(), req)
		if err != nil || len(resp.GetResult().GetEvents()) != 0 {
			b.Fatal(resp, err)
		}
	}
}
