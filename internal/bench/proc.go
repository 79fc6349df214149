package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Statistics of processes under /proc. On systems other than Linux, the files do not exist and the
// values are unknown.

const (
	procDir = "/proc"
	// procTick is the unit of CPU times in /proc. USER_HZ is 100 on every architecture that Go
	// supports.
	procTick = 10 * time.Millisecond
)

// procStat contains the fields of /proc/PID/stat that the bench reads.
type procStat struct {
	command  string
	parent   int
	own      time.Duration // CPU time of the process
	children time.Duration // CPU time of its children that have ended
}

func readProcStat(pid int) (procStat, error) {
	text, err := os.ReadFile(filepath.Join(procDir, strconv.Itoa(pid), "stat"))
	if err != nil {
		return procStat{}, err
	}
	return parseProcStat(text)
}

// parseProcStat parses "pid (command) state parent …". The command may contain anything, including
// parentheses.
func parseProcStat(text []byte) (procStat, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return procStat{}, fmt.Errorf("no command in %q", text)
	}
	s := procStat{command: string(text[open+1 : end])}
	fields := strings.Fields(string(text[end+1:]))
	const parent, user, system, childUser, childSystem = 1, 11, 12, 13, 14
	if len(fields) <= childSystem {
		return procStat{}, fmt.Errorf("only %d fields after the command in %q", len(fields), text)
	}
	numbers := map[int]int64{}
	for _, i := range []int{parent, user, system, childUser, childSystem} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return procStat{}, fmt.Errorf("field %d of %q: %w", i, text, err)
		}
		numbers[i] = n
	}
	s.parent = int(numbers[parent])
	s.own = time.Duration(numbers[user]+numbers[system]) * procTick
	s.children = time.Duration(numbers[childUser]+numbers[childSystem]) * procTick
	return s, nil
}

// postgresCPU returns the CPU time of a PostgreSQL server, that is, of the postmaster and its live
// and ended children.
func postgresCPU(postmaster int) (time.Duration, error) {
	root, err := readProcStat(postmaster)
	if err != nil {
		return 0, err
	}
	used := root.own + root.children
	entries, err := os.ReadDir(procDir)
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if child, err := readProcStat(pid); err == nil && child.parent == postmaster {
			used += child.own
		}
	}
	return used, nil
}

// postmasterOf returns the PID of the parent of a backend. It returns 0 if the PID of the backend
// is not that of a local PostgreSQL process, for example because the server runs in a container.
func postmasterOf(backend int) int {
	child, err := readProcStat(backend)
	if err != nil || !strings.HasPrefix(child.command, "postgres") {
		return 0
	}
	root, err := readProcStat(child.parent)
	if err != nil || !strings.HasPrefix(root.command, "postgres") {
		return 0
	}
	return child.parent
}

// residentBytes returns the resident memory of a process.
func residentBytes(pid int) (int64, error) {
	text, err := os.ReadFile(filepath.Join(procDir, strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	return parseMemory(string(text), "VmRSS")
}

// peakBytes returns the peak resident memory of a process.
func peakBytes(pid int) (int64, error) {
	text, err := os.ReadFile(filepath.Join(procDir, strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	return parseMemory(string(text), "VmHWM")
}

func parseMemory(status, name string) (int64, error) {
	for line := range strings.Lines(status) {
		value, found := strings.CutPrefix(line, name+":")
		if !found {
			continue
		}
		kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %q: %w", line, err)
		}
		return kilobytes << 10, nil
	}
	return 0, fmt.Errorf("no %s", name)
}
