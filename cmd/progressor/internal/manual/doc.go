// Command manual writes docs/cli.md from the template cli.md.tmpl and the command line itself: the
// help, arguments, flags, defaults and environment variables of each command. `make generate` runs
// it.
//
// The template contains the introductions and sample output. Start with render in page.go.
package main
