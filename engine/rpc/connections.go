package rpc

import (
	"net"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Connections limits the connections of a listener. A client cannot open another connection if it
// already has at least as many connections as are still free. As a result, the first client can use
// half of the connections, and the next client half of the rest. Without the limit, clients could
// use up the memory and the file descriptors of the node. Connections is safe for concurrent use.
type Connections struct {
	max      int
	refusals *prometheus.CounterVec
	refused  map[string]prometheus.Counter // by bound
	open     prometheus.Gauge
	opened   prometheus.Counter

	mu   sync.Mutex
	held map[string]int
	all  int
}

// The labels of refused connections.
const (
	boundOfNode   = "connections"
	boundOfClient = "client_connections"
)

// NewConnections returns Connections with a limit for all clients together.
func NewConnections(limit int) *Connections {
	c := &Connections{
		max: limit, held: map[string]int{}, refused: map[string]prometheus.Counter{},
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "progressor_connections_refused_total",
			Help: "Connections that were closed immediately, because their client (bound client_connections) or all " +
				"clients together (connections) have too many.",
		}, []string{"bound"}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "progressor_connections",
			Help: "Open connections of clients.",
		}),
		opened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "progressor_connections_opened_total",
			Help: "Connections of clients that were accepted.",
		}),
	}
	for _, bound := range []string{boundOfNode, boundOfClient} {
		c.refused[bound] = c.refusals.WithLabelValues(bound)
	}
	return c
}

// Collectors returns the metrics of the connections.
func (c *Connections) Collectors() []prometheus.Collector {
	return []prometheus.Collector{c.refusals, c.open, c.opened}
}

// Limit returns a listener that closes the connections beyond the limits immediately.
func (c *Connections) Limit(ln net.Listener) net.Listener { return &limitedListener{ln, c} }

// enter counts a connection. It returns false if there are too many.
func (c *Connections) enter(client string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := c.max - c.all
	switch {
	case free == 0:
		c.refused[boundOfNode].Inc()
		return false
	case c.held[client] >= free:
		c.refused[boundOfClient].Inc()
		return false
	}
	c.held[client]++
	c.all++
	c.open.Inc()
	c.opened.Inc()
	return true
}

func (c *Connections) leave(client string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[client]--; c.held[client] == 0 {
		delete(c.held, client)
	}
	c.all--
	c.open.Dec()
}

type limitedListener struct {
	net.Listener
	connections *Connections
}

// Accept returns the next connection within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := machineOf(conn.RemoteAddr().String())
		if l.connections.enter(client) {
			leave := sync.OnceFunc(func() { l.connections.leave(client) })
			if tcp, ok := conn.(*net.TCPConn); ok {
				return &limitedTCP{tcp, leave}, nil
			}
			return &limitedConn{conn, leave}, nil
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // closing then frees the port immediately; this fails only if the connection is closed
		}
		_ = conn.Close() // fails only if the connection is closed
	}
}

// limitedTCP keeps the methods of a TCP connection that net/http uses, such as CloseWrite.
type limitedTCP struct {
	*net.TCPConn
	leave func()
}

// Close closes the connection.
func (c *limitedTCP) Close() error {
	c.leave()
	return c.TCPConn.Close()
}

type limitedConn struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
