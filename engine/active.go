package engine

import "sync"

// activeCounter counts the claims that this node runs and the requests that may become claims. It
// signals when the count is 0, and rejects new requests and claims while the node is stopping.
type activeCounter struct {
	mu       sync.Mutex
	n        int
	refusing bool          // new requests are rejected
	closed   bool          // new claims are rejected
	empty    chan struct{} // closed when the count reaches 0; nil if no caller waits for that
}

// enter counts a request. It returns false if the node is stopping.
func (c *activeCounter) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusing {
		return false
	}
	c.n++
	return true
}

// join counts a claim that is stored for this node, even while the node drains. It returns false
// after close.
func (c *activeCounter) join() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.n++
	return true
}

func (c *activeCounter) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	if c.n == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}

// refuse rejects new requests.
func (c *activeCounter) refuse() {
	c.mu.Lock()
	c.refusing = true
	c.mu.Unlock()
}

// idle returns a channel that is closed when nothing runs.
func (c *activeCounter) idle() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle := make(chan struct{})
	switch {
	case c.n == 0:
		close(idle)
	case c.empty != nil:
		return c.empty
	default:
		c.empty = idle
	}
	return idle
}

func (c *activeCounter) close() {
	c.mu.Lock()
	c.refusing, c.closed = true, true
	c.mu.Unlock()
}
