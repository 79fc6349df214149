// Command sdktypes is a protoc plugin that writes the types and the methods of the API for the
// SDKs: sdk/typescript/src/api.ts and sdk/python/src/progressor/api.py. `make generate` runs it.
package main
