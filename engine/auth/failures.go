package auth

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// failureRate is how many failed authentications per second one address may have.
	failureRate = 10
	// failureDelay is how long the answer to a failure is delayed. It hides how far the check of a
	// token came.
	failureDelay = 100 * time.Millisecond
	// maxAddresses limits the number of addresses that are remembered.
	maxAddresses = 10_000
)

// failures limits the failed authentications of each address.
type failures struct {
	pause time.Duration

	mu        sync.Mutex
	addresses map[netip.Prefix]*rate.Limiter
}

func newFailures() *failures {
	return &failures{pause: failureDelay, addresses: map[netip.Prefix]*rate.Limiter{}}
}

// add counts a failure. It returns false if the address has too many.
func (f *failures) add(address string) bool { return f.limiter(address).Allow() }

// allow reports whether the address may fail once more.
func (f *failures) allow(address string) bool { return f.limiter(address).Tokens() >= 1 }

func (f *failures) limiter(address string) *rate.Limiter {
	network := networkOf(address)
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.addresses[network]
	if l == nil {
		if len(f.addresses) >= maxAddresses {
			f.drop()
		}
		l = rate.NewLimiter(failureRate, failureRate)
		f.addresses[network] = l
	}
	return l
}

// drop removes the addresses without failures in the last second. If too many addresses remain, it
// removes all.
func (f *failures) drop() {
	for network, l := range f.addresses {
		if l.Tokens() >= failureRate {
			delete(f.addresses, network)
		}
	}
	if len(f.addresses) >= maxAddresses {
		clear(f.addresses)
	}
}

// networkOf returns the network that counts as one client: an IPv4 address, or a /64 of IPv6.
func networkOf(address string) netip.Prefix {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Prefix{}
	}
	addr := to.Addr().WithZone("").Unmap()
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	network, _ := addr.Prefix(bits) // bits fits the address
	return network
}

// delay waits for the time of a failure.
func (f *failures) delay(ctx context.Context) {
	timer := time.NewTimer(f.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
