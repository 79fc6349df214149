// Package signature signs HTTP requests and checks their signatures, as defined by Standard
// Webhooks (https://www.standardwebhooks.com). The engine signs the requests to processors, to HTTP
// targets of crons and to webhooks. Receivers check them: see Handler for a processor in Go.
//
// A signature is the HMAC-SHA256 of the headers webhook-id and webhook-timestamp and of the body,
// or a signature of them with Ed25519. It covers neither other headers nor the URL.
//
// The package imports nothing of this module. Start with Verify.
package signature
