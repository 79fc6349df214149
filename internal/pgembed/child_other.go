//go:build unix && !linux

package pgembed

import "syscall"

// procAttributes puts the child into its own process group, so Ctrl-C on the terminal does not stop
// the server before its clients. These systems cannot signal a child whose parent was killed: such
// a server continues, and the next Start reports it.
func procAttributes(credential *syscall.Credential, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential, Setpgid: true}
}
