// Package durablevet finds mistakes in durable functions that the compiler cannot find. It reads
// the functions and function literals that have a parameter of type durable.Ctx, but not the other
// functions that they call. The command progressor-vet runs it as a tool of go vet:
//
//	go vet -vettool=$(which progressor-vet) ./...
package durablevet
