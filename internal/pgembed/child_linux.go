package pgembed

import "syscall"

// procAttributes bind the child to this process. The kernel sends the signal when the THREAD that started the child ends,
// which startChild takes care of. A group of its own keeps the terminal's Ctrl-C away from the server: who started it decides when
// it goes, after its clients.
func procAttributes(credential *syscall.Credential, onParentDeath syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential, Setpgid: true, Pdeathsig: onParentDeath}
}
