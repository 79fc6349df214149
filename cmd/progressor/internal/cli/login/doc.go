// Package login stores the logins of users at issuers of OpenID Connect, one for each engine, and
// refreshes their tokens.
//
// Start with File in file.go. Issuer in issuer.go gets the first token by the device flow
// (RFC 8628).
package login
