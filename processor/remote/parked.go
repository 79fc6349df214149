package remote

import (
	"cmp"
	"context"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// parkedAt describes a process that a processor has in its memory. The engine keeps the description
// until the next task of the process.
type parkedAt struct {
	id string // see ProcessResponse.parked_id
	at *endpoint
}

// parkedAtBytes is the approximate memory for a parkedAt and its bookkeeping in the engine.
const parkedAtBytes = 1 << 10

// send sends a request to the endpoint that has the process in memory, or else to any endpoint. If
// the request must be sent again, with the history, the error is that of Kept.NoHistory.
func (p *Processor) send(
	ctx context.Context, req *progressorv1.ProcessRequest, kept *processor.Kept,
) (*progressorv1.ProcessResponse, *endpoint, error) {
	last, ok := kept.Take().(*parkedAt)
	if !ok {
		return p.endpoints.call(ctx, req)
	}
	req.ParkedId = last.id
	resp, err := p.endpoints.callAt(ctx, last.at, req)
	switch {
	case ctx.Err() != nil:
	case err == nil && !resp.GetContinued(), // the program does not have the process, or ignores parked_id
		processor.BadResponse(err), // the program may be too old to read parked_id
		processor.Unreachable(err) && len(p.endpoints.all) > 1:
		return nil, last.at, kept.NoHistory()
	}
	return resp, last.at, err
}

// keep stores the endpoint of the response for the next task, if the response has a parked_id.
func keep(
	kept *processor.Kept, req *progressorv1.ProcessRequest, resp *progressorv1.ProcessResponse, at *endpoint,
) {
	if kept == nil || resp.GetParkedId() == "" || resp.GetResult() == nil {
		return
	}
	last := cmp.Or(resp.GetLastEventId(), req.GetProcess().GetLastEventId())
	kept.Park(&parkedAt{resp.GetParkedId(), at}, processor.Parked{
		LastEventID: last + int64(len(resp.GetResult().GetEvents())), Bytes: parkedAtBytes,
	}, func() {})
}
