// Package migrations contains the schema as goose migrations, embedded in the binary. Existing
// migrations never change; see CONTRIBUTING.md. Package storage applies them.
package migrations
