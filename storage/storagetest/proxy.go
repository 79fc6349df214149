package storagetest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Proxy forwards connections to the server of a database, so that a test can break them.
type Proxy struct {
	DSN string // connection string of the database, through the proxy

	server string
	serve  func(client, server net.Conn)
	mutex  sync.Mutex
	conns  map[net.Conn]struct{}
}

// NewProxy starts a proxy for a database that the function DSN has created. For each connection it
// calls serve in a new goroutine. serve must forward the data of both ends. When serve returns,
// both ends are closed. When the test ends, the proxy is stopped.
func NewProxy(t testing.TB, dsn string, serve func(client, server net.Conn)) *Proxy {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("storagetest: connection string: %v", err)
	}
	dir, err := os.MkdirTemp("", "proxy") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := fmt.Sprintf(".s.PGSQL.%d", config.Port)
	p := &Proxy{
		DSN: dsn + " host=" + dir, server: filepath.Join(config.Host, socket), serve: serve,
		conns: map[net.Conn]struct{}{},
	}
	listener, err := net.Listen("unix", filepath.Join(dir, socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = listener.Close()
		p.Cut()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.forward(client)
		}
	}()
	return p
}

func (p *Proxy) forward(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	p.mutex.Lock()
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.mutex.Unlock()
	p.serve(client, server)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}

// Cut breaks all connections.
func (p *Proxy) Cut() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}
