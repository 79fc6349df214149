// Package crons reads and writes the cron ledger: the table cron_fires, with one row per fire.
package crons
