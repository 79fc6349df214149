// Package cron contains the commands for crons and their ledger. The preview command computes fire
// times without an engine, with the top-level package cron.
//
// It imports cli, output and protoyaml. Start with Commands in cron.go.
package cron
