//go:build linux

package chaos

import (
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// proxy is a proxy between one engine and PostgreSQL that can break its connections.
type proxy struct {
	dsn      string
	server   string
	listener net.Listener
	lost     atomic.Int64 // responses of the server that were dropped

	mutex    sync.Mutex
	conns    map[net.Conn]struct{}
	deaf     bool          // responses are dropped, and their connections closed
	released chan struct{} // nil if it is not a black hole
}

func newProxy(t testing.TB, dsn string) *proxy {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	socket := fmt.Sprintf(".s.PGSQL.%d", config.Port)
	dir := t.TempDir()
	p := &proxy{dsn: dsn + " host=" + dir, server: filepath.Join(config.Host, socket), conns: map[net.Conn]struct{}{}}
	if p.listener, err = net.Listen("unix", filepath.Join(dir, socket)); err != nil {
		t.Fatal(err)
	}
	go p.accept()
	t.Cleanup(func() {
		p.listener.Close()
		p.pass()
		p.cut()
	})
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", p.server)
		if err != nil {
			client.Close()
			continue
		}
		p.mutex.Lock()
		p.conns[client], p.conns[server] = struct{}{}, struct{}{}
		p.mutex.Unlock()
		go p.copy(server, client, false)
		go p.copy(client, server, true)
	}
}

// copy forwards one direction until an end is closed.
func (p *proxy) copy(to, from net.Conn, answers bool) {
	defer func() {
		to.Close()
		from.Close()
		p.mutex.Lock()
		defer p.mutex.Unlock()
		delete(p.conns, to)
		delete(p.conns, from)
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.mutex.Lock()
		deaf, released := p.deaf, p.released
		p.mutex.Unlock()
		if deaf && answers {
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

// cut breaks all connections.
func (p *proxy) cut() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// loseAnswers forwards statements but breaks the connections at their responses, so that the engine
// does not know whether they were executed.
func (p *proxy) loseAnswers() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.deaf = true
}

// stall holds everything in both directions and closes nothing.
func (p *proxy) stall() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.released = make(chan struct{})
}

// pass heals the proxy. Data that it has held is lost, with its connections.
func (p *proxy) pass() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.deaf = false
	if p.released != nil {
		close(p.released)
		p.released = nil
	}
}
