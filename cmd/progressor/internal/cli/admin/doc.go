// Package admin contains the commands that observe and manage engines and namespaces.
//
// It imports cli, output and protoyaml. Start with Commands in overview.go.
package admin
