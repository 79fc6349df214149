// Package sinks delivers the recorded changes of namespaces to targets outside of the engine.
//
// A target implements Deliverer, in a subpackage: kafka, or webhook. Package format encodes changes
// and knows no target. The subpackages of targets import this one for their errors.
package sinks
