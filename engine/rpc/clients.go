package rpc

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Limits bounds the requests and streams that a node serves at the same time. 0 means no limit.
type Limits struct {
	ClientRequests int // requests per client and class, except streams
	ClientStreams  int // streams per client
	Streams        int // streams of all clients together

	refused func(bound string) // counts a request that was rejected; may be nil
}

// class is the kind of a request for the limits of its client. Each class is counted separately.
type class int

const (
	classWork class = iota
	classWait       // waits for an event
	// classReserved is for answers from workers and commands from operators. It is counted
	// separately, so that workers do not lose their leases because of the other requests of their
	// client.
	classReserved
	classStream
	classes
)

// clients counts the requests and streams in flight of each client.
type clients struct {
	limits Limits

	mu      sync.Mutex
	held    map[string]*[classes]int
	streams int
}

func newClients(limits Limits) *clients {
	if limits.refused == nil {
		limits.refused = func(string) {}
	}
	return &clients{limits: limits, held: map[string]*[classes]int{}}
}

// enter counts a request. It returns an error if the client or the node has reached a limit.
// Otherwise, the caller must call leave.
func (c *clients) enter(client string, of class) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.held[client]
	if held == nil {
		held = new([classes]int)
	}
	limit := c.limits.ClientRequests
	if of == classStream {
		limit = c.limits.ClientStreams
		if c.limits.Streams > 0 && c.streams >= c.limits.Streams {
			c.limits.refused(boundOfStreams)
			return &process.OverloadError{
				Bound: fmt.Sprintf("the node has reached its max_streams (%d)", c.streams),
			}
		}
	}
	if limit > 0 && held[of] >= limit {
		c.limits.refused(boundOf[of].label)
		return &process.OverloadError{
			Bound: fmt.Sprintf("the client %s has %d %s on this node, and %s does not allow more", client, held[of],
				boundOf[of].what, boundOf[of].setting),
		}
	}
	held[of]++
	c.held[client] = held
	if of == classStream {
		c.streams++
	}
	return nil
}

// leave removes a request from the count.
func (c *clients) leave(client string, of class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.held[client]
	held[of]--
	if of == classStream {
		c.streams--
	}
	if *held == [classes]int{} {
		delete(c.held, client)
	}
}

// boundOfStreams is the label of streams that are rejected because the node has too many.
const boundOfStreams = "streams"

// clientBounds returns the labels of all limits that clients enforces.
func clientBounds() []string {
	bounds := []string{boundOfStreams}
	for _, of := range boundOf {
		bounds = append(bounds, of.label)
	}
	return bounds
}

// boundOf describes the limit of a client for each class.
var boundOf = [classes]struct{ label, what, setting string }{
	classWork:     {"client_in_flight", "requests in flight", "max_in_flight_per_client"},
	classWait:     {"client_awaits", "waiting requests", "max_in_flight_per_client"},
	classReserved: {"client_answers", "answers and commands", "max_in_flight_per_client"},
	classStream:   {"client_streams", "streams", "max_streams_per_client"},
}

// clientOf returns the client name to which the limits of a request apply. With authentication, it
// is the principal, so that clients behind one proxy do not share a limit. Keys with the same name
// belong to one client. Without authentication, it is the address of the peer.
func clientOf(ctx context.Context, address string) string {
	if p := principalOf(ctx); p != nil {
		return p.Owner()
	}
	return machineOf(address)
}

// machineOf returns the name of the machine with an address. All addresses of an IPv6 /64 network
// count as one machine, because one machine may use all of them.
func machineOf(address string) string {
	port, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	ip := port.Addr().Unmap().WithZone("")
	switch {
	case ip.IsLoopback():
		return "localhost"
	case ip.Is6():
		network, _ := ip.Prefix(64) // cannot fail: 64 bits are valid
		return network.String()
	}
	return ip.String()
}

// reservedMethods contains the methods that workers with leases call. A method whose name begins
// with one of reservedVerbs is a command of an operator.
var (
	reservedMethods = map[string]bool{
		"Checkpoint": true, "Complete": true, "CompleteBatch": true, "Heartbeat": true, "Release": true,
	}
	reservedVerbs = []string{"Pause", "Resume", "Suspend", "Cancel", "Drain", "Stop"}
)

// classOf returns the class of a unary request.
func classOf(procedure string, message any) class {
	switch m := message.(type) {
	case *progressorv1.PollRequest:
		return classWait
	case *progressorv1.AwaitTaskRequest:
		if m.GetTimeout().AsDuration() > 0 {
			return classWait
		}
		return classWork
	}
	if awaits(message) {
		return classWait
	}
	method := methodOf(procedure)
	if reservedMethods[method] {
		return classReserved
	}
	for _, verb := range reservedVerbs {
		if strings.HasPrefix(method, verb) {
			return classReserved
		}
	}
	return classWork
}
