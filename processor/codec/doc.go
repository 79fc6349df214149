// Package codec encrypts payloads, so that the engine and its database see only ciphertext.
//
// AESGCM is the Codec that this package contains. client.WithCodec and processor.WithCodec apply a
// Codec to the messages of the engine: they encode payloads before they are sent, and decode those
// that are received. Payloads does this for one message or value. An application needs it only if
// it gets payloads from elsewhere, such as from a sink.
//
// fields.go lists every field of the API that may contain a payload, and the values in them that
// stay in the clear. Start with codec.go, then payloads.go.
package codec
