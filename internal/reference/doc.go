// Command reference is a protoc plugin that writes docs/reference.md from the proto files and their
// comments. `make generate` runs it.
package main
