// Package auth authenticates the clients of the API by their tokens. It does not decide what a
// client may do: every authenticated client may do everything.
//
// Start with Authenticator in authenticator.go. Package rpc calls it for each request, and puts the
// Principal into the context.
package auth
