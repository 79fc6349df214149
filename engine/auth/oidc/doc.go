// Package oidc verifies JSON Web Tokens of OpenID Connect issuers, and returns the user and the
// groups in them.
//
// Start with Issuers in issuers.go. It finds the issuer of a token, whose keys are in keys.go, and
// reads the claims (claims.go). Package auth caches verified tokens and finds the grants of their
// users (engine/auth/users.go).
package oidc
