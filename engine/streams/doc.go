// Package streams sends the recorded changes of namespaces to clients. It reads them with package
// storage/changes, as package sinks does.
package streams
