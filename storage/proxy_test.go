package storage_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// proxy is a proxy between a store and its server that breaks the connections of lanes at given
// points.
type proxy struct {
	*storagetest.Proxy

	mutex sync.Mutex
	cut   cut
	done  chan struct{} // closed when the connection was cut
}

// cut is the point at which the next exchange of a lane is cut.
type cut int

const (
	never        cut = iota
	beforeCommit     // the statements do not reach the server
	afterCommit      // the response of the server is lost
)

func newProxy(t testing.TB, dsn string) *proxy {
	t.Helper()
	p := &proxy{}
	p.Proxy = storagetest.NewProxy(t, dsn, p.serve)
	return p
}

// next arms the proxy for one exchange of one lane. It returns a channel that is closed after the
// cut.
func (p *proxy) next(c cut) <-chan struct{} {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.cut, p.done = c, make(chan struct{})
	return p.done
}

func (p *proxy) armed() cut {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.cut
}

func (p *proxy) made() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.cut != never {
		p.cut = never
		close(p.done)
	}
}

// serve forwards one connection. The first message of a client contains its application name. Only
// connections of lanes are cut.
func (p *proxy) serve(client, server net.Conn) {
	first := make([]byte, 4096)
	n, err := client.Read(first)
	if err != nil {
		return
	}
	if _, err := server.Write(first[:n]); err != nil {
		return
	}
	if !bytes.Contains(first[:n], []byte("progressor lane")) {
		go func() { _, _ = io.Copy(server, client) }()
		_, _ = io.Copy(client, server)
		return
	}
	var executes atomic.Bool
	go func() {
		defer client.Close()
		defer server.Close()
		p.passStatements(server, client, &executes)
	}()
	p.passAnswers(client, server, &executes)
}

// ready is the message that ends the server's response to a batch: ReadyForQuery, outside a
// transaction.
var ready = []byte{'Z', 0, 0, 0, 5, 'I'}

// passStatements copies the messages of a client until one end is closed or the connection is cut.
// An exchange that begins with Bind runs statements. An exchange that begins with Parse only
// prepares statements and is not cut.
func (p *proxy) passStatements(server io.Writer, client io.Reader, executes *atomic.Bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		executes.Store(buffer[0] == 'B')
		if executes.Load() && p.armed() == beforeCommit {
			p.made()
			return
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// passAnswers copies the messages of a server until one end is closed or the connection is cut. The
// messages of the exchange that is cut are lost.
func (p *proxy) passAnswers(client io.Writer, server io.Reader, executes *atomic.Bool) {
	buffer := make([]byte, 64<<10)
	swallowed := false
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		swallowed = swallowed || (executes.Load() && p.armed() == afterCommit)
		if swallowed {
			if bytes.HasSuffix(buffer[:n], ready) {
				p.made()
				return
			}
			continue
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}
