//go:build unix && !linux

package pgembed

import "syscall"

// procAttributes give the child a group of its own, so that the terminal's Ctrl-C leaves the end of the server to who
// started it. These systems cannot signal a child whose parent was killed: such a server goes on, and the next Start says so.
func procAttributes(credential *syscall.Credential, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential, Setpgid: true}
}
