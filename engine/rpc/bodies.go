package rpc

import (
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// bodyTimeout is how long the body of a request may take, in addition to the time that
	// minBodyRate allows for its size.
	bodyTimeout = 30 * time.Second
	minBodyRate = 32 << 10 // bytes per second
	// bodyRestTimeout is how long the server waits for the rest of a body that was not read.
	bodyRestTimeout = 5 * time.Second
)

// limitBodyTime ends requests whose body arrives too slowly. Otherwise, clients that send a byte
// now and then could use up all file descriptors. It calls rejected for each request that it ends.
// Probes and requests without a body are not affected.
func limitBodyTime(next http.Handler, timeout time.Duration, rejected func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		body := &timedBody{ReadCloser: r.Body, control: http.NewResponseController(w), rejected: rejected,
			timeout: timeout}
		body.start()
		defer body.stop()
		// r is copied, because net/http must keep the body that it has set. If another body
		// replaced it, net/http could take the unread rest of a body for the next request.
		r = r.WithContext(r.Context())
		r.Body = body
		next.ServeHTTP(w, r)
	})
}

// timedBody is a body with a deadline, which moves with each byte.
type timedBody struct {
	io.ReadCloser
	control  *http.ResponseController
	rejected func()
	timeout  time.Duration

	mu    sync.Mutex
	timer *time.Timer // one timer for a body: a deadline for each read would cost more
	begin time.Time
	read  int64
	ended bool // the body was read to its end, or the deadline was set
}

func (b *timedBody) start() {
	b.begin = time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = time.AfterFunc(b.timeout, b.check)
}

// check ends the request if its body is too slow, and otherwise checks again later.
func (b *timedBody) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	allowed := b.timeout + time.Duration(b.read)*time.Second/minBodyRate
	if left := allowed - time.Since(b.begin); left > 0 {
		b.timer.Reset(left)
		return
	}
	b.ended = true
	b.rejected()
	_ = b.control.SetReadDeadline(time.Unix(1, 0)) // fails only if the connection is closed
}

// Read reads a part of the body.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read += int64(n)
	if err != nil && !b.ended {
		b.ended = true
		b.timer.Stop()
	}
	return n, err
}

// stop limits the time for the rest of the body. net/http reads the rest before the next request on
// the connection, and sets a new deadline for that request.
func (b *timedBody) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.ended = true
	b.timer.Stop()
	// This fails only if the connection is closed.
	_ = b.control.SetReadDeadline(time.Now().Add(min(b.timeout, bodyRestTimeout)))
}
