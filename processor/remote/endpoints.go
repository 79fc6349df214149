package remote

import (
	"context"
	"errors"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// restTime is the time during which an endpoint that could not be reached or was busy is tried only
// after all others. Without it, each call whose first host drops packets would wait for
// dialTimeout.
const restTime = 5 * time.Second

// endpoints are the URLs of a processor. They are safe for concurrent use.
type endpoints struct {
	all   []*endpoint
	calls atomic.Uint64
}

type endpoint struct {
	call callFunc
	url  *url.URL
	host string       // for errors
	rest atomic.Int64 // time until which the endpoint is tried last, in nanoseconds since 1970
}

func (e *endpoints) add(targets []*url.URL, dial func(*url.URL) callFunc) {
	for _, target := range targets {
		e.all = append(e.all, &endpoint{call: dial(target), url: target, host: target.Host})
	}
}

// call sends a request to the endpoints in turn, until one of them has accepted it. It returns the
// last one that was tried.
func (e *endpoints) call(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (resp *progressorv1.ProcessResponse, at *endpoint, err error) {
	if len(e.all) == 1 {
		resp, err := e.all[0].call(ctx, req)
		return resp, e.all[0], err
	}
	for _, at = range e.order(time.Now()) {
		if resp, err = at.call(ctx, req); err == nil || !processor.Unreachable(err) {
			return resp, at, err
		}
		if ctx.Err() != nil {
			break
		}
		at.rest.Store(time.Now().Add(restTime).UnixNano())
	}
	return nil, at, err
}

// callAt sends a request to one of the endpoints. If this endpoint rests, and there are others, it
// returns an UnreachableError at once.
func (e *endpoints) callAt(
	ctx context.Context, at *endpoint, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	others := len(e.all) > 1
	if others && at.rest.Load() > time.Now().UnixNano() {
		return nil, &processor.UnreachableError{Err: errors.New("the last request could not reach it")}
	}
	resp, err := at.call(ctx, req)
	if others && processor.Unreachable(err) && ctx.Err() == nil {
		at.rest.Store(time.Now().Add(restTime).UnixNano())
	}
	return resp, err
}

// order returns the endpoints in the order in which a call tries them: round robin, with resting
// endpoints last.
func (e *endpoints) order(now time.Time) []*endpoint {
	ready := make([]*endpoint, 0, len(e.all))
	var resting []*endpoint
	first := e.calls.Add(1) - 1
	for n := range uint64(len(e.all)) {
		at := e.all[(first+n)%uint64(len(e.all))]
		if at.rest.Load() > now.UnixNano() {
			resting = append(resting, at)
		} else {
			ready = append(ready, at)
		}
	}
	return append(ready, resting...)
}
