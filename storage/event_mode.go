package storage

// EventMode determines which events of its jobs a namespace keeps. Statements compare these values.
type EventMode int32

// The event modes.
const (
	EventsNone EventMode = iota
	EventsEnds           // events with which a job or a run ends
	EventsAll
)

// OnEventMode sets the function that returns the event mode of a namespace. Without it, all events
// are kept. It must not block.
func (s *Store) OnEventMode(mode func(namespace string) EventMode) { s.eventMode.Store(&mode) }

func (s *Store) eventModeOf(namespace string) EventMode {
	if mode := s.eventMode.Load(); mode != nil {
		return (*mode)(namespace)
	}
	return EventsAll
}

// EventModeOf returns the event mode of a namespace as a parameter for statements.
func (s *Store) EventModeOf(namespace string) int32 { return int32(s.eventModeOf(namespace)) }

// EventModes returns the event modes of namespaces as a parameter for statements.
func (s *Store) EventModes(namespaces []string) []int32 {
	modes := make([]int32, len(namespaces))
	for n, ns := range namespaces {
		if n > 0 && namespaces[n-1] == ns {
			modes[n] = modes[n-1]
			continue
		}
		modes[n] = int32(s.eventModeOf(ns))
	}
	return modes
}
