package engine

import (
	"maps"
	"slices"
)

// namePauses contains the paused names, sorted, of the namespaces that have any. It is immutable.
type namePauses map[string][]string

// pausedNames returns the paused names of a namespace, as known to this node. Callers must not
// modify them.
func (r *registry) pausedNames(namespace string) []string {
	if p := r.pauses.Load(); p != nil {
		return (*p)[namespace]
	}
	return nil
}

// hasPausedNames reports whether a namespace has paused names.
func (e *Engine) hasPausedNames(namespace string) bool {
	return len(e.registry.pausedNames(namespace)) > 0
}

// PausedNames returns the paused names of a namespace, sorted, as known to this node. The state may
// be one second old. Callers must not modify the result.
func (e *Engine) PausedNames(namespace string) []string { return e.registry.pausedNames(namespace) }

// IsNamePaused reports whether a name is paused, as known to this node.
func (e *Engine) IsNamePaused(namespace, name string) bool {
	_, paused := slices.BinarySearch(e.registry.pausedNames(namespace), name)
	return paused
}

// SetNamePaused applies a pause or a resume of a name that this node has just stored.
func (e *Engine) SetNamePaused(namespace, name string, paused bool) {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	e.registry.puts++
	names := slices.Clone(e.registry.pausedNames(namespace))
	at, found := slices.BinarySearch(names, name)
	if found == paused {
		return
	}
	if found {
		names = slices.Delete(names, at, at+1)
	} else {
		names = slices.Insert(names, at, name)
	}
	next := namePauses{}
	if p := e.registry.pauses.Load(); p != nil {
		next = maps.Clone(*p)
	}
	if next[namespace] = names; len(names) == 0 {
		delete(next, namespace)
	}
	e.applyPauses(next)
}

// applyPauses replaces the paused names. If they have changed, it wakes the pollers, and the polls
// of the namespaces that have changed. The caller holds the lock of the registry.
func (e *Engine) applyPauses(next namePauses) {
	var old namePauses
	if p := e.registry.pauses.Load(); p != nil {
		old = *p
	}
	changed := map[string]struct{}{}
	for _, all := range []namePauses{old, next} {
		for namespace := range all {
			if !slices.Equal(old[namespace], next[namespace]) {
				changed[namespace] = struct{}{}
			}
		}
	}
	if len(changed) > 0 {
		e.registry.pauses.Store(&next)
		e.wakeAll()
		e.workers.NamespacesChanged(changed)
	}
}
