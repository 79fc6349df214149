package auth

import (
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
)

// maxAddresses limits the number of addresses or other keys that a node remembers.
const maxAddresses = 10_000

// limiters has a limiter for each key. It is safe for concurrent use.
type limiters[K comparable] struct {
	rate  rate.Limit
	burst int

	mu    sync.Mutex
	byKey map[K]*rate.Limiter
}

func newLimiters[K comparable](limit rate.Limit, burst int) *limiters[K] {
	return &limiters[K]{rate: limit, burst: burst, byKey: map[K]*rate.Limiter{}}
}

// budget limits the rate at which clients of the same address do something. It is safe for
// concurrent use.
type budget struct{ *limiters[netip.Prefix] }

func newBudget(limit rate.Limit, burst int) *budget {
	return &budget{newLimiters[netip.Prefix](limit, burst)}
}

// take uses up one unit of an address. It returns false if none is left.
func (b *budget) take(address string) bool { return b.limiter(networkOf(address)).Allow() }

// left reports whether any unit of an address is left.
func (b *budget) left(address string) bool { return b.limiter(networkOf(address)).Tokens() >= 1 }

// limiter returns the limiter of a key.
func (b *limiters[K]) limiter(key K) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.byKey[key]
	if l == nil {
		if len(b.byKey) >= maxAddresses {
			b.drop()
		}
		l = rate.NewLimiter(b.rate, b.burst)
		b.byKey[key] = l
	}
	return l
}

// drop removes the keys whose budget is full. If too many remain, it removes all.
func (b *limiters[K]) drop() {
	for key, l := range b.byKey {
		if l.Tokens() >= float64(b.burst) {
			delete(b.byKey, key)
		}
	}
	if len(b.byKey) >= maxAddresses {
		clear(b.byKey)
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
