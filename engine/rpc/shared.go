package rpc

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/process"
)

const (
	// sharedRate is the maximum number of statements per second for shared reads that accept older
	// responses, regardless of the number of clients. Other reads are not limited. One overview
	// needs about three. sharedBurst is the maximum number of statements at once after a quiet
	// period.
	sharedRate  = 5
	sharedBurst = 50
	// sharedWait is how long a shared read waits for its turn if there is no earlier response.
	// sharedTimeout limits the read itself.
	sharedWait    = 10 * time.Second
	sharedTimeout = 10 * time.Second
	// maxSharedAge is the maximum age of a response, even if the client accepts older ones.
	maxSharedAge = time.Minute
	// maxSharedBytes and maxShared limit the cache to 32 MiB.
	maxSharedBytes = 256 << 10
	maxShared      = 128
	// maxSharedRequest is the size of the largest request whose response is shared.
	maxSharedRequest = 64 << 10
)

// sharedCost is the number of statements of reads that need more than one.
var sharedCost = map[string]int{
	"GetOverview": 11, "ListErrors": 3, "ExplainProcess": 7, "ListConstraints": 2, "GetRun": 3, "ListRuns": 2,
	"ListSteps": 2, "ListOpenWaits": 2, "GetTemplate": 2, "ExplainSink": 3,
}

// ofClient contains the reads whose responses depend on the identity of the client, not only on
// what the client may see.
var ofClient = map[string]bool{"ListOpenWaits": true}

// shared caches the responses of reads, so that many viewers cost as much as one. A client that
// sends `Cache-Control: max-age=SECONDS` accepts responses of that age. A client without the header
// gets a new response. A client that only refreshes its view sends `max-stale`. While the
// statements of this second are used up, such a client also accepts older responses, up to
// maxSharedAge. As a result, the first read of a page is fast, and later reads wait for their turn.
type shared struct {
	pace *rate.Limiter

	mu        sync.Mutex
	responses map[sharedKey]*sharedResponse
}

// sharedKey is the hash of a method, the view of the principal, and a request.
type sharedKey [sha256.Size]byte

type sharedResponse struct {
	done     chan struct{} // closed when the other fields are set
	began    time.Time
	response connect.AnyResponse
	err      error
}

func newShared() *shared {
	return &shared{pace: rate.NewLimiter(sharedRate, sharedBurst), responses: map[sharedKey]*sharedResponse{}}
}

// unary returns a cached response, or reads it for all clients with the same request.
func (s *shared) unary(
	ctx context.Context, request connect.AnyRequest, next connect.UnaryFunc,
) (connect.AnyResponse, error) {
	header, procedure := request.Header().Get("Cache-Control"), request.Spec().Procedure
	age := maxAge(header)
	message, ok := request.Any().(proto.Message)
	if age == 0 || !ok || !isRead(procedure) || awaits(message) {
		return next(ctx, request)
	}
	return s.respond(ctx, age, strings.Contains(header, "max-stale"), methodOf(procedure), message,
		func(ctx context.Context) (connect.AnyResponse, error) { return next(ctx, request) })
}

// reading reads a response.
type reading func(context.Context) (connect.AnyResponse, error)

func (s *shared) respond(
	ctx context.Context, age time.Duration, mayBeStale bool, method string, message proto.Message, read reading,
) (connect.AnyResponse, error) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil || len(text) > maxSharedRequest {
		return read(ctx)
	}
	view := viewOf(ctx)
	if p := principalOf(ctx); p != nil && ofClient[method] {
		view += "\x00" + strings.Join(append([]string{p.Name}, p.Groups()...), "\n")
	}
	key := sha256.Sum256([]byte(method + "\x00" + view + "\x00" + string(text)))
	s.mu.Lock()
	a, reads := s.responses[key], false
	if a == nil || a.isAvailable() && time.Since(a.began) > age {
		cost := max(1, sharedCost[method])
		now := s.pace.AllowN(time.Now(), cost) || !mayBeStale
		if a == nil || now || time.Since(a.began) > maxSharedAge {
			a = &sharedResponse{done: make(chan struct{}), began: time.Now()}
			s.drop()
			s.responses[key] = a
			if now {
				cost = 0
			}
			reads = true
			go s.read(context.WithoutCancel(ctx), key, a, cost, read)
		}
	}
	s.mu.Unlock()
	if reads { // even if the client has disconnected, so that its reads in progress never exceed its share
		<-a.done
		return a.response, a.err
	}
	select {
	case <-a.done:
		return a.response, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// isAvailable reports whether the response is available.
func (a *sharedResponse) isAvailable() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// read reads a response when the rate limit allows its cost. A cost of 0 means that the cost is
// already reserved, or that the client accepts no older response.
func (s *shared) read(ctx context.Context, key sharedKey, a *sharedResponse, cost int, read reading) {
	defer close(a.done)
	defer func() {
		if r := recover(); r != nil {
			// for the log; the client gets an internal error
			a.response, a.err = nil, fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
		if message, ok := responseOf(a.response); a.err != nil || !ok || proto.Size(message) > maxSharedBytes {
			s.forget(key, a)
		}
	}()
	waiting, cancelWaiting := context.WithTimeout(ctx, sharedWait)
	defer cancelWaiting()
	if s.pace.WaitN(waiting, cost) != nil {
		a.err = fmt.Errorf("too many different views are open: %w", process.ErrOverloaded)
		return
	}
	limited, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	if a.response, a.err = read(limited); a.err == nil {
		// Create both now: connect creates them on first use, which is not safe for concurrent use.
		a.response.Header()
		a.response.Trailer()
	}
}

func responseOf(r connect.AnyResponse) (proto.Message, bool) {
	if r == nil {
		return nil, false
	}
	message, ok := r.Any().(proto.Message)
	return message, ok
}

// drop makes room for one more response. The caller holds the lock.
func (s *shared) drop() {
	var oldest sharedKey
	for key, a := range s.responses {
		if time.Since(a.began) > maxSharedAge+sharedWait {
			delete(s.responses, key)
		} else if oldest == (sharedKey{}) || a.began.Before(s.responses[oldest].began) {
			oldest = key
		}
	}
	if len(s.responses) >= maxShared {
		delete(s.responses, oldest)
	}
}

func (s *shared) forget(key sharedKey, a *sharedResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.responses[key] == a {
		delete(s.responses, key)
	}
}

// maxAge returns the maximum age of a response that the client accepts, or 0 if it needs a new one.
func maxAge(header string) time.Duration {
	for part := range strings.SplitSeq(header, ",") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(part), "max-age="); ok {
			seconds, err := strconv.ParseUint(text, 10, 16)
			if err == nil {
				return min(time.Duration(seconds)*time.Second, maxSharedAge)
			}
		}
	}
	return 0
}

// awaits reports whether a read waits for an event.
func awaits(message any) bool {
	if m, ok := message.(interface{ GetAwaitInit() *durationpb.Duration }); ok && m.GetAwaitInit() != nil {
		return true
	}
	m, ok := message.(interface{ GetAwaitEnd() *durationpb.Duration })
	return ok && m.GetAwaitEnd() != nil
}

func methodOf(procedure string) string { return procedure[strings.LastIndexByte(procedure, '/')+1:] }

// isRead reports whether a method changes nothing, according to its name.
func isRead(procedure string) bool {
	for _, verb := range []string{"Get", "List", "Count", "Explain", "Trace", "Preview", "Watch", "Await"} {
		if strings.HasPrefix(methodOf(procedure), verb) {
			return true
		}
	}
	return false
}
