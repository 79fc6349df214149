package engine_test

import (
	"context"
	"testing"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/internal/budget"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A large response holds its memory until its result is stored. Other large responses of its
// namespace wait for the memory, and small responses do not.
func TestLargeResponsesWait(t *testing.T) {
	t.Parallel()
	g, asked := newGate(), make(chan struct{}, 2)
	n := start(t, storagetest.DSN(t), byTask{callTask: func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		if string(r.GetArgs()) == "small" {
			return processor.Result().Done()
		}
		asked <- struct{}{}
		if err := budget.From(ctx).Take(ctx, 1<<40); err != nil { // as much as a namespace gets
			return nil, err
		}
		if err := g.pass(ctx, r, true); err != nil {
			return nil, err
		}
		return processor.Result().Done()
	}})
	n.put(t, &progressorv1.Namespace{Namespace: "ns"})
	wait := func(p *engine.CallParams) { p.Timeout = longWait }
	for _, id := range []string{"p", "q", "r"} {
		n.started(t, id)
	}
	first := n.calling("p", "large", wait)
	receive(t, "the first large response", g.entered)
	second := n.calling("q", "large", wait)
	for range 2 {
		receive(t, "a large response", asked)
	}
	if res := receive(t, "a small response", n.calling("r", "small", wait)); res.err != nil {
		t.Error(res.err)
	}
	select {
	case <-g.entered:
		t.Error("the second large response does not wait")
	case res := <-second:
		t.Errorf("the second large response ends: %v", res.err)
	default:
	}
	close(g.open)
	for name, c := range map[string]<-chan result{"first": first, "second": second} {
		if res := receive(t, "the "+name+" large response", c); res.err != nil {
			t.Errorf("the %s large response: %v", name, res.err)
		}
	}
}
