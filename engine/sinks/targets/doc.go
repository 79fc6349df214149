// Package targets opens the targets of sinks. Start with Open.
package targets
