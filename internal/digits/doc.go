// Package digits finds integers that a google.protobuf.Value would round. It walks the JSON text of
// a message, so that an error can name the path of the integer. Start with Check.
package digits
