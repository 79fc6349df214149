// Package auth authenticates the clients of the API by their tokens, and knows what each of them
// may do: its grants are roles in namespaces, and a role is a set of permissions.
//
// Start with Authenticator in authenticator.go. Package rpc calls it for each request, puts the
// Principal into the context, and checks the permission that the method needs.
package auth
