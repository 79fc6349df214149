// Package cron contains the commands for crons and their ledger. preview computes fire times
// without an engine; package cron of the module contains that logic.
//
// It imports cli, output and protoyaml. Start with Commands in cron.go.
package cron
