// Package pgembed runs a private PostgreSQL with the binaries of this machine. `progressor dev`
// uses it and keeps the data. Tests use it and delete the data. The server belongs to the process
// that started it and ends with it.
//
// Clients connect through a Unix socket in a directory that only the user of the server and root
// can enter. They need no password. The server does not listen on TCP.
//
// Start with Start (pgembed.go).
package pgembed
