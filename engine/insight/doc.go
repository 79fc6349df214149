// Package insight answers questions of operators: why a process waits, which errors there are,
// whether the tasks of a namespace run, and how many processes, tasks and nodes there are. It also
// exports the metrics that read the database during a scrape. It changes nothing.
//
// Insight combines rows of storage/insight with the state of the node (Engine.NamespaceState and
// Engine.NodeState). Start with insight.go. ExplainProcess (explain.go) fills the input of the pure
// package explain. NamespaceHealth is in health.go, and GetOverview is in overview.go. Package
// engine does not import this package.
package insight
