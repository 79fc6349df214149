// Package demo contains the processor of `progressor dev`: orders of a small shop. It is meant to
// be read: each function handles one type of task that the engine sends. An order waits for its
// payment until a timer fires, is shipped a second after the payment, and is then COMPLETED. Start
// with Orders.
package demo
