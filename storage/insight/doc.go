// Package insight has the statements of engine/insight: reads of many processes, tasks and nodes
// for operators and metrics. They are not on the path of a request. They use the connections for
// reads and maintenance (Store.Read and Store.ReadOne). Start with explain.go.
package insight
