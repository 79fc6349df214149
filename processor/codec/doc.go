// Package codec encrypts payloads, so that the engine and its database see only ciphertext.
//
// AESGCM implements Codec. client.WithCodec and processor.WithCodec apply a Codec to the messages
// that a program exchanges with the engine: they encode outgoing payloads, and decode incoming
// ones. Payloads does this for one message or value. An application needs Payloads only if it gets
// payloads from elsewhere, such as from a sink.
//
// fields.go lists every field of the API that may contain a payload, and the values in them that
// stay in the clear. Start with codec.go, then payloads.go.
package codec
