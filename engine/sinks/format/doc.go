// Package format encodes changes for targets outside of the engine, as CloudEvents 1.0 or protobuf.
//
// The package is pure. It writes CloudEvents itself: the attributes of a change are eight strings,
// so that the code is shorter than the calls that cloudevents/sdk-go would need, and the program
// links none of the SDK's dependencies.
package format
