package engine

import (
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// With tracing off, a task allocates no memory for traces.
func TestTracingOffCostsNothing(t *testing.T) {
	var off *traces
	ctx, c, sent := t.Context(), &storage.Claim{Context: []byte("mine")}, []byte("mine")
	var d decision
	if n := testing.AllocsPerRun(100, func() {
		kept := off.keep(ctx, "p", sent)
		in, span := off.begin(ctx, nil, c, off.asked(ctx, "p", kept))
		endSpan(span, &d, time.Time{}, nil)
		parent, _ := off.handOut(c)
		if in != ctx || parent != "" || &kept[0] != &sent[0] || off.leaseContext(sent) != nil {
			t.Error("tracing is not off")
		}
	}); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}
