//go:build unix

package storagetest

import (
	"os"
	"os/exec"
	"path/filepath"
)

// exitSource is a library in C for the processes of PostgreSQL. A process ends without the cleanup
// of its libraries. A backend inherits the memory of OpenSSL and others from the postmaster. If it
// frees this memory at its exit, the kernel first copies each page. This took half of the CPU time
// of a short connection. PostgreSQL has run its own callbacks when it calls exit. A process also
// keeps the memory that it frees, because new pages cost 8% of the CPU time of the scenario tests.
const exitSource = `#include <malloc.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void keep(void) {
	mallopt(M_TRIM_THRESHOLD, 1 << 28);
	mallopt(M_MMAP_THRESHOLD, 1 << 25);
	mallopt(M_TOP_PAD, 1 << 20);
}
void exit(int status) { fflush(NULL); _exit(status); }
`

// buildExit compiles exitSource into a directory and returns the path of the library. Without a C
// compiler, it returns "": the tests work without the library, but take longer.
func buildExit(dir string) string {
	source, library := filepath.Join(dir, "exit.c"), filepath.Join(dir, "exit.so")
	if os.WriteFile(source, []byte(exitSource), 0o600) != nil ||
		exec.Command("cc", "-shared", "-fPIC", "-w", "-o", library, source).Run() != nil {
		return ""
	}
	// PostgreSQL may run as another user.
	if os.Chmod(library, 0o755) != nil {
		return ""
	}
	return library
}
