// Command openapi completes docs/openapi.yaml with facts that its generator does not know.
// `make generate` runs it after the generator:
//
//	go run ./internal/openapi docs/openapi.yaml
//
// It makes these changes:
//
//   - Each method also accepts and returns application/msgpack.
//   - The header Connect-Protocol-Version is optional.
//   - A duration is "1.5s". The format "duration" of JSON Schema is ISO 8601.
//   - Bytes fields have the content encoding base64, and their maximum length is that of the
//     base64.
//   - ProcessorService is served by processors, not by the engine.
package main
