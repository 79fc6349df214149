// Package pgembed runs a private PostgreSQL with the binaries of this machine: for `progressor
// dev`, which keeps its data, and for tests, which delete it. The server belongs to the process
// that started it and ends with it.
//
// Clients connect through a Unix socket in a directory that only the user of the server and root
// can enter; they need no password. The server does not listen on TCP.
//
// Start with Start (pgembed.go).
package pgembed
