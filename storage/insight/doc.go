// Package insight has the statements of engine/insight: reads of many processes, tasks and nodes
// for operators and metrics. None of them is on the path of a request, and all use the connections
// for reads and maintenance (Store.Read and Store.ReadOne). Start with explain.go.
package insight
