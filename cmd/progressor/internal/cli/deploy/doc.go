// Package deploy contains the command that checks a new build of durable functions against the
// processes that are open.
//
// It imports cli and output. Start with checkCmd.Run in command.go; check.go reads the processes
// and sends their journals to the build, and report.go prints the findings.
package deploy
