//go:build linux

package chaos

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// proxy is a proxy between one engine and PostgreSQL that can break its connections.
type proxy struct {
	*storagetest.Proxy
	lost atomic.Int64 // responses of the server that were dropped

	mutex        sync.Mutex
	dropsAnswers bool          // responses are dropped, and their connections closed
	released     chan struct{} // nil if the proxy does not hold data
}

func newProxy(t testing.TB, dsn string) *proxy {
	t.Helper()
	p := &proxy{}
	p.Proxy = storagetest.NewProxy(t, dsn, func(client, server net.Conn) {
		go func() {
			defer client.Close()
			defer server.Close()
			p.copy(server, client, false)
		}()
		p.copy(client, server, true)
	})
	t.Cleanup(p.pass)
	return p
}

// copy forwards one direction until an end is closed.
func (p *proxy) copy(to, from net.Conn, answers bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.mutex.Lock()
		dropsAnswers, released := p.dropsAnswers, p.released
		p.mutex.Unlock()
		if dropsAnswers && answers {
			p.lost.Add(1)
			return
		}
		if released != nil {
			<-released
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// loseAnswers forwards statements but breaks the connections at their responses, so that the engine
// does not know whether they were executed.
func (p *proxy) loseAnswers() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.dropsAnswers = true
}

// stall holds all data in both directions, and closes no connection.
func (p *proxy) stall() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.released = make(chan struct{})
}

// pass makes the proxy work again. Data that it has held is lost, together with the connections.
func (p *proxy) pass() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.dropsAnswers = false
	if p.released != nil {
		close(p.released)
		p.released = nil
	}
}
