// Package crons reads and writes the ledger of crons, the table cron_fires.
package crons
