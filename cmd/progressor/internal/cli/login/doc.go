// Package login stores the logins of a user at OpenID Connect issuers, one for each engine, and
// refreshes their tokens.
//
// Start with File in file.go. Issuer in issuer.go gets the first token with the device flow
// (RFC 8628).
package login
