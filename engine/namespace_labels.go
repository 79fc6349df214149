package engine

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// OtherNamespaces is the label "namespace" of the metrics of all namespaces that have no series
	// of their own. No namespace can have this name.
	OtherNamespaces = "(other)"
	// maxLabelled is the number of namespaces that have series of their own. A namespace can have
	// hundreds of lines in a scrape, and a scrape of 5,000 namespaces had 62 MB.
	maxLabelled = 200
)

// namespaceSeries are metrics with the label "namespace".
type namespaceSeries interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

// namespaceLabels chooses which namespaces have series of their own.
type namespaceLabels struct {
	mu     sync.RWMutex
	own    map[string]struct{}
	others bool // there are more namespaces
	series []namespaceSeries
	starts []func(label string) // see StartSeries
}

// add gives a namespace series of its own if there is room, and returns its label.
func (l *namespaceLabels) add(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.own[name]; ok {
		return name
	}
	if len(l.own) >= maxLabelled {
		if !l.others {
			l.others = true
			l.start(OtherNamespaces)
		}
		return OtherNamespaces
	}
	if l.own == nil {
		l.own = map[string]struct{}{}
	}
	l.own[name] = struct{}{}
	l.start(name)
	return name
}

// start creates the series of a label.
func (l *namespaceLabels) start(label string) {
	for _, start := range l.starts {
		start(label)
	}
}

// drop deletes the series of a namespace that was deleted.
func (l *namespaceLabels) drop(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.own, name)
	for _, s := range l.series {
		s.DeletePartialMatch(prometheus.Labels{"namespace": name})
	}
}

// NamespaceLabel returns the label "namespace" of the metrics of a namespace: its name, or
// OtherNamespaces for all but the first 200 that this node knows.
func (e *Engine) NamespaceLabel(name string) string {
	e.labels.mu.RLock()
	defer e.labels.mu.RUnlock()
	if _, ok := e.labels.own[name]; ok {
		return name
	}
	return OtherNamespaces
}

// TrackSeries registers metrics with the label "namespace". The series of a namespace are deleted
// with the namespace.
func (e *Engine) TrackSeries(series ...namespaceSeries) {
	e.labels.mu.Lock()
	defer e.labels.mu.Unlock()
	e.labels.series = append(e.labels.series, series...)
}

// StartSeries calls start for the label of each namespace, now or when this node learns of the
// namespace. start creates the series that must be exported as 0 before their first event, because
// rate() and increase() do not count an event that creates its series. It must not call the engine.
func (e *Engine) StartSeries(start func(label string)) {
	e.labels.mu.Lock()
	defer e.labels.mu.Unlock()
	e.labels.starts = append(e.labels.starts, start)
	for name := range e.labels.own {
		start(name)
	}
	if e.labels.others {
		start(OtherNamespaces)
	}
}
