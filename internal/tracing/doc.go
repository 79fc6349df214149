// Package tracing propagates a trace from a request to its tasks and their processors, as W3C Trace
// Context, in headers and in the column context. It creates no spans and exports nothing.
//
// In the column, the trace is text: the value of the header traceparent (55 bytes) and, if there is
// a tracestate, a newline and its value.
package tracing
