//go:build unix

package storagetest

import (
	"os"
	"os/exec"
	"path/filepath"
)

// preloadSource is a library in C for the processes of PostgreSQL. It ends a process without the
// cleanup of its libraries. A backend inherits the memory of OpenSSL and others from the
// postmaster. If the backend frees this memory at its exit, the kernel first copies each page. This
// took half of the CPU time of a short connection. PostgreSQL has run its own callbacks when it
// calls exit. The library also keeps freed memory in the process, because new pages cost 8% of the
// CPU time of the scenario tests.
const preloadSource = `#include <malloc.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void keep(void) {
	mallopt(M_TRIM_THRESHOLD, 1 << 28);
	mallopt(M_MMAP_THRESHOLD, 1 << 25);
	mallopt(M_TOP_PAD, 1 << 20);
}
void exit(int status) { fflush(NULL); _exit(status); }
`

// buildPreload compiles preloadSource into a directory and returns the path of the library. Without
// a C compiler, it returns "": the tests work without the library, but take longer.
func buildPreload(dir string) string {
	source, library := filepath.Join(dir, "preload.c"), filepath.Join(dir, "preload.so")
	if os.WriteFile(source, []byte(preloadSource), 0o600) != nil ||
		exec.Command("cc", "-shared", "-fPIC", "-w", "-o", library, source).Run() != nil {
		return ""
	}
	// PostgreSQL may run as another user.
	if os.Chmod(library, 0o755) != nil {
		return ""
	}
	return library
}
