//go:build !linux

package bench

import "os"

func fdatasync(file *os.File) error { return file.Sync() }
