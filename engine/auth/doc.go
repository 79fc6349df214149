// Package auth authenticates the clients of the API by their tokens, client certificates or console
// logins, and determines what each of them may do. The grants of a client are roles in namespaces,
// and a role is a set of permissions.
//
// Start with Authenticator in authenticator.go, Principal in grants.go and roles.go. Package oidc
// verifies the tokens of users. Package rpc calls the Authenticator for each request and puts the
// Principal into the context (engine/rpc/authenticate.go). It then checks the permission that the
// method needs (engine/rpc/authorize.go).
package auth
