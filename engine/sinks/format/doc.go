// Package format encodes changes for targets outside of the engine, as CloudEvents 1.0 or protobuf.
//
// The package is pure. It writes CloudEvents without cloudevents/sdk-go. The attributes of a change
// are eight strings, so this code is shorter than the calls of the SDK would be, and the program
// does not link the dependencies of the SDK.
package format
