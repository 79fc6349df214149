package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
)

// shop fakes the services of a shop. Each request has an idempotency key. A repeated request with
// the same key has no effect.
type shop struct {
	mu      sync.Mutex
	keys    map[string]bool
	effects []string
	down    int // how many requests fail before the services work again
}

func newShop() *shop { return &shop{keys: map[string]bool{}} }

// do has an effect once. The card "declined" is declined.
func (s *shop) do(c context.Context, what string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down > 0 {
		s.down--
		return "", errors.New("the service is down")
	}
	if strings.HasSuffix(what, " declined") {
		return "", processor.Reject("declined", "the bank declined the card")
	}
	if key := durable.StepKey(c); !s.keys[key] {
		s.keys[key] = true
		s.effects = append(s.effects, what)
	}
	return what, nil
}

func (s *shop) undo(c context.Context, what string) error {
	_, err := s.do(c, "undo "+what)
	return err
}

// done returns the effects so far, sorted.
func (s *shop) done() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(s.effects)), ", ")
}
