// Package format encodes changes for targets outside of the engine, as CloudEvents 1.0 or protobuf.
//
// The package is pure. It writes CloudEvents without cloudevents/sdk-go: the attributes of a change
// are eight strings, so this code is shorter than the calls of the SDK, and the program does not
// link its dependencies.
package format
