package processor

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/progressor-engine/progressor/internal/parked"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// closeGrace is how long Close waits for parked values to be dropped.
const closeGrace = time.Second

// expiryInterval is the time after which all values are too old, unless another value was parked.
const expiryInterval = parked.MaxTime + time.Second

// ErrHistoryNeeded is the error of Parking.Process for a request with a parked_id if the value is
// no longer there. The engine must send the request again, with the history.
var ErrHistoryNeeded = errors.New("the process with the parked_id of the request is not in memory")

// Parking contains the values that processors park (see Kept.Park) in a program that gets its tasks
// from an engine over the network. Handler uses one with WithParking, and every worker has one. It
// contains at most 10,000 values and 128 MiB, and each value for at most 15 minutes.
type Parking struct {
	values *parked.Values[*parkedValue]
	expiry *time.Timer
}

// parkedValue is a parked value with the ID that the engine knows.
type parkedValue struct {
	id   string
	kept *Kept
}

func (v *parkedValue) Size() int { return v.kept.Parked().Bytes }

func (v *parkedValue) Drop() { v.kept.Drop() }

// NewParking returns a Parking without values.
func NewParking() *Parking {
	k := &Parking{values: parked.New[*parkedValue](parked.MaxValues)}
	k.expiry = time.AfterFunc(expiryInterval, k.expire)
	return k
}

func (k *Parking) expire() { k.values.Expire(time.Now().Add(-parked.MaxTime)) }

// Process calls p. If p has parked a value for the process, and the request has the ID of this
// value, p gets the value. If p parks a value, the response has a new ID. The error is
// ErrHistoryNeeded if the request has an ID and p does not get its value.
func (k *Parking) Process(
	ctx context.Context, p Processor, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	if IsCheck(req) {
		return p.Process(ctx, req)
	}
	k.expire()
	key := process.Key{Namespace: req.GetProcess().GetNamespace(), ProcessID: req.GetProcess().GetProcessId()}
	kept := &Kept{parksOnly: true}
	if v, ok := k.values.Take(key); ok {
		if v.id == req.GetParkedId() {
			kept = v.kept
		} else { // another node or another attempt has continued the process
			k.values.Drop(v)
		}
	}
	kept.SetOmitsHistory()
	continued := kept.OmitsHistory()
	if req.GetParkedId() != "" && !continued {
		return nil, ErrHistoryNeeded
	}
	generation, returned := k.values.Generation(), false
	defer func() {
		if !returned { // p has panicked
			k.values.Drop(&parkedValue{kept: kept})
		}
	}()
	resp, err := p.Process(WithKept(ctx, kept), req)
	returned = true
	id := k.park(key, kept, generation, err == nil && resp.GetResult() != nil)
	if kept.Repeats() {
		return nil, ErrHistoryNeeded
	}
	if err != nil || resp == nil || id == "" && !continued {
		return resp, err
	}
	return &progressorv1.ProcessResponse{
		Outcome: resp.GetOutcome(), LastEventId: resp.GetLastEventId(), ParkedId: id, Continued: continued,
	}, nil
}

// park parks the value that the processor keeps if the attempt has a result, and returns its new
// ID. It drops anything else that the processor keeps, and returns "".
func (k *Parking) park(key process.Key, kept *Kept, generation int, hasResult bool) (id string) {
	v := &parkedValue{rand.Text(), kept}
	if hasResult && kept.Parked() != nil && k.values.Put(key, v, generation) {
		k.expiry.Reset(expiryInterval)
		return v.id
	}
	k.values.Drop(v)
	return ""
}

// Close drops all values, and those of attempts that end later. It waits at most a second for
// deferred functions of users.
func (k *Parking) Close() {
	k.values.Clear()
	k.values.AwaitDrops(closeGrace)
}

// WithParking lets durable functions that wait stay in memory, so that the next task of their
// process needs no replay and the engine sends no history. Use it if each URL of the namespace
// leads to one program. If a URL leads to several programs, a request may reach another program
// than the last one. Then the engine has to send it again, with the history.
func WithParking() Option {
	k := NewParking()
	return func(o *options) { o.parking = k }
}

// parks is a processor that may park values. Without a Parking, it asks for the history of
// processes that an earlier program has parked.
type parks struct {
	processor Processor
	parking   *Parking
}

func (p *parks) Process(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	resp, err := (*progressorv1.ProcessResponse)(nil), ErrHistoryNeeded
	switch {
	case p.parking != nil:
		resp, err = p.parking.Process(ctx, p.processor, req)
	case req.GetParkedId() == "":
		return p.processor.Process(ctx, req)
	}
	if errors.Is(err, ErrHistoryNeeded) {
		return failed(Fail("history_needed", "%w", err).Failure), nil
	}
	return resp, err
}
