// Package tidy checks the layers and the style of this repository. Its tests run every rule on all
// files; each rule has a test that plants a violation.
//
// Start with File, which lists the rules for one file, and Ladder, which checks imports. prose.go
// has the rules for language.
package tidy
