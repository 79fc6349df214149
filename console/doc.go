// Package console contains the built files of the web console. `make console` builds them from the
// TypeScript sources in console/src. They are committed, so neither the program nor its tests need
// Node.
package console
