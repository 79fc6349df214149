package storage

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/progressor-engine/progressor/process"
)

// changeReaders wakes the change readers of namespaces after commits by this node. A commit only
// looks up its namespaces in a map, so it costs almost nothing if they have no reader. Transactions
// that do not know their processes, such as scans, wake no reader. Readers find the changes of
// these transactions in their next read.
type changeReaders struct {
	mu sync.Mutex // held while the map is replaced by a changed copy
	// byNamespace is nil if there is no reader.
	byNamespace atomic.Pointer[map[string][]*changeReader]
}

type changeReader struct {
	wake func()
	far  bool
}

// OnChanges calls wake after transactions of this node that may have recorded changes in a
// namespace, and after WakeReaders, until stop is called. See changeReaders for the transactions
// that wake no reader. wake must not block.
func (s *Store) OnChanges(namespace string, wake func()) (stop func()) {
	return s.changeReaders.add(namespace, &changeReader{wake: wake})
}

// OnChangesForOthers is like OnChanges for readers on other nodes: WakeReaders does not call wake.
func (s *Store) OnChangesForOthers(namespace string, wake func()) (stop func()) {
	return s.changeReaders.add(namespace, &changeReader{wake: wake, far: true})
}

// WakeReaders wakes the change readers of a namespace on this node, or those of all namespaces if
// namespace is "". It is called if another node may have recorded changes.
func (s *Store) WakeReaders(namespace string) {
	byNamespace := s.changeReaders.byNamespace.Load()
	if byNamespace == nil {
		return
	}
	for name, readers := range *byNamespace {
		if namespace != "" && name != namespace {
			continue
		}
		for _, r := range readers {
			if !r.far {
				r.wake()
			}
		}
	}
}

func (c *changeReaders) add(namespace string, r *changeReader) (stop func()) {
	c.change(func(m map[string][]*changeReader) {
		m[namespace] = append(m[namespace][:len(m[namespace]):len(m[namespace])], r)
	})
	return sync.OnceFunc(func() {
		c.change(func(m map[string][]*changeReader) {
			var others []*changeReader
			for _, other := range m[namespace] {
				if other != r {
					others = append(others, other)
				}
			}
			if m[namespace] = others; len(others) == 0 {
				delete(m, namespace)
			}
		})
	})
}

func (c *changeReaders) change(edit func(map[string][]*changeReader)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := map[string][]*changeReader{}
	if old := c.byNamespace.Load(); old != nil {
		changed = maps.Clone(*old)
	}
	if edit(changed); len(changed) == 0 {
		c.byNamespace.Store(nil)
		return
	}
	c.byNamespace.Store(&changed)
}

// flushed wakes the readers of the namespaces of a committed flush. It ignores calls, because only
// their results record changes.
func (c *changeReaders) flushed(ops []operation) {
	byNamespace := c.byNamespace.Load()
	if byNamespace == nil {
		return
	}
	woken := ""
	for _, op := range ops {
		if _, call := op.(*callItem); call {
			continue
		}
		i := op.base()
		for _, namespace := range [...]string{i.key.Namespace, i.also.Namespace} {
			if namespace != woken && namespace != "" {
				woken = namespace
				wakeAll((*byNamespace)[namespace])
			}
		}
	}
}

// committed wakes the readers of the namespaces of processes that a transaction has changed.
func (c *changeReaders) committed(keys []process.Key) {
	byNamespace := c.byNamespace.Load()
	if byNamespace == nil {
		return
	}
	woken := ""
	for _, key := range keys {
		if key.Namespace != woken {
			woken = key.Namespace
			wakeAll((*byNamespace)[woken])
		}
	}
}

func wakeAll(readers []*changeReader) {
	for _, r := range readers {
		r.wake()
	}
}
