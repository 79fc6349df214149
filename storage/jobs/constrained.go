package jobs

import (
	"encoding/json"
	"maps"
	"slices"
)

// Constrained holds the constraint keys of a job.
type Constrained struct {
	Version int64             // version of the constraints under which it was evaluated; 0 if there are none
	Keys    map[string]string // by the name of the constraint
}

// KeyOf returns the name of a key queue: the name of the constraint, =, and the value. A constraint
// name contains no =.
func KeyOf(constraint, key string) string { return constraint + "=" + key }

// KeyNames returns the key queues of all keys, sorted.
func (c Constrained) KeyNames() []string {
	lines := make([]string, 0, len(c.Keys))
	for _, name := range slices.Sorted(maps.Keys(c.Keys)) {
		lines = append(lines, KeyOf(name, c.Keys[name]))
	}
	return lines
}

// FirstKey returns the key queue in which the job waits first, or "" if it needs no key.
func (c Constrained) FirstKey() string {
	if len(c.Keys) == 0 {
		return ""
	}
	return c.KeyNames()[0]
}

// JSON returns the keys as stored in jobs.constraint_keys, or "" if there are none.
func (c Constrained) JSON() string {
	if len(c.Keys) == 0 {
		return ""
	}
	text, _ := json.Marshal(c.Keys) // a map of strings
	return string(text)
}
