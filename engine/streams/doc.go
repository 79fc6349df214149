// Package streams sends the recorded changes of namespaces to clients.
package streams
