// Package rpc serves the API: the services of progressor/v1 over Connect, gRPC, gRPC-Web and JSON,
// health checks, metrics and the console. It validates requests, calls package engine, and maps
// errors.
//
// Start with handler.go (routes), interceptor.go (validation and limits) and errors.go. Each
// service has a file, such as process.go. The package contains no logic of processes.
package rpc
