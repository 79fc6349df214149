package rpc

import (
	"net/http"
	"sync"
	"time"
)

const (
	// writeTimeout is how long a client may take to read a part of a response.
	writeTimeout = 30 * time.Second
	// writePart is the size of a part.
	writePart = 64 << 10
)

// limitStalls ends responses that their client does not read. Without it, a client that never reads
// could hold the memory of its responses and streams forever. It calls rejected for each of these
// responses.
func limitStalls(next http.Handler, timeout time.Duration, rejected func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timed := &timedWriter{ResponseWriter: w, rejected: rejected, timeout: timeout}
		defer timed.stop()
		next.ServeHTTP(timed, r)
	})
}

// timedWriter is a response with a deadline for each part of it.
type timedWriter struct {
	http.ResponseWriter
	rejected func()
	timeout  time.Duration

	mu    sync.Mutex
	timer *time.Timer // one timer for a response: a deadline for each write would cost more
	begin time.Time   // when the current write began; zero if there is none
	ended bool
}

// Unwrap supports http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes data in parts, so that a slow client that still reads is not mistaken for a stalled
// one.
func (w *timedWriter) Write(data []byte) (written int, err error) {
	for {
		part := data[written:min(len(data), written+writePart)]
		w.start() // even a small part blocks if the client has not read earlier responses
		n, err := w.ResponseWriter.Write(part)
		w.end()
		written += n
		if err != nil || written == len(data) {
			return written, err
		}
	}
}

// Flush sends buffered data. Streams flush each message.
func (w *timedWriter) Flush() { _ = w.FlushError() } // the next write returns the error

// FlushError is Flush for http.ResponseController.
func (w *timedWriter) FlushError() error {
	w.start()
	defer w.end()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// start begins a write that may block.
func (w *timedWriter) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin = time.Now()
	if w.timer == nil && !w.ended {
		w.timer = time.AfterFunc(w.timeout, w.check)
	}
}

// end ends a write.
func (w *timedWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin = time.Time{}
}

// check ends the response if its client has stalled, and otherwise checks again later.
func (w *timedWriter) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	left := w.timeout
	if !w.begin.IsZero() {
		left -= time.Since(w.begin)
	}
	if left > 0 {
		w.timer.Reset(left)
		return
	}
	w.ended = true
	w.rejected()
	// This fails only if the connection is closed.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
}

// stop ends the checks. The server sends the last buffer of a response after the handler has
// returned. Therefore stop sets a deadline for that buffer, which ends with the response.
func (w *timedWriter) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	if !w.ended {
		// This fails only if the connection is closed.
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.timeout))
	}
	w.ended = true
}
