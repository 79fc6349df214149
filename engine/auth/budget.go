package auth

import (
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
)

// maxAddresses limits the number of addresses that are remembered.
const maxAddresses = 10_000

// budget limits how often clients of the same address do something. It is safe for concurrent use.
type budget struct {
	rate  rate.Limit
	burst int

	mu        sync.Mutex
	addresses map[netip.Prefix]*rate.Limiter
}

func newBudget(limit rate.Limit, burst int) *budget {
	return &budget{rate: limit, burst: burst, addresses: map[netip.Prefix]*rate.Limiter{}}
}

// take uses up one unit of an address. It returns false if none is left.
func (b *budget) take(address string) bool { return b.limiter(address).Allow() }

// left reports whether an address has a unit left.
func (b *budget) left(address string) bool { return b.limiter(address).Tokens() >= 1 }

func (b *budget) limiter(address string) *rate.Limiter {
	network := networkOf(address)
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.addresses[network]
	if l == nil {
		if len(b.addresses) >= maxAddresses {
			b.drop()
		}
		l = rate.NewLimiter(b.rate, b.burst)
		b.addresses[network] = l
	}
	return l
}

// drop removes the addresses that have all of their budget. If too many addresses remain, it
// removes all.
func (b *budget) drop() {
	for network, l := range b.addresses {
		if l.Tokens() >= float64(b.burst) {
			delete(b.addresses, network)
		}
	}
	if len(b.addresses) >= maxAddresses {
		clear(b.addresses)
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
