// Package rpc serves the API: the services of progressor/v1 over Connect, gRPC, gRPC-Web and JSON,
// health checks, metrics and the console. It authenticates clients, validates and authorizes
// requests, calls package engine, and maps errors.
//
// Start with handler.go (routes), interceptor.go (what runs before each handler), authorize.go
// (what a method needs) and errors.go. Each service has a file, such as process.go. The package
// contains no logic of processes.
package rpc
