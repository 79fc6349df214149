package pgembed

import "syscall"

// procAttributes binds the child to this process. The kernel sends the signal when the thread that
// started the child ends; startChild handles that. The child has its own process group, so Ctrl-C
// on the terminal does not stop the server before its clients.
func procAttributes(credential *syscall.Credential, onParentDeath syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential, Setpgid: true, Pdeathsig: onParentDeath}
}
