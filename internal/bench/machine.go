package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Machine contains the facts about the machine and the server on which the figures depend.
type Machine struct {
	Cores             int      `json:"cores"`
	Go                string   `json:"go"`
	Program           string   `json:"program"` // version of progressor
	PostgreSQL        string   `json:"postgresql"`
	Local             bool     `json:"server_on_this_machine"`
	Fsync             string   `json:"fsync"`
	SynchronousCommit string   `json:"synchronous_commit"`
	FullPageWrites    string   `json:"full_page_writes"`
	WALInitZero       string   `json:"wal_init_zero"`
	SharedBuffers     string   `json:"shared_buffers"`
	FdatasyncMillis   *float64 `json:"fdatasync_ms,omitempty"` // median of 8 KiB writes in the directory of the server
}

func (s *server) describe(ctx context.Context, version string) (*Machine, error) {
	m := &Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Program: version, Local: s.postmaster != 0}
	settings := []struct {
		name string
		into *string
	}{
		{"server_version", &m.PostgreSQL},
		{"fsync", &m.Fsync}, {"synchronous_commit", &m.SynchronousCommit}, {"full_page_writes", &m.FullPageWrites},
		{"wal_init_zero", &m.WALInitZero}, {"shared_buffers", &m.SharedBuffers},
	}
	for _, setting := range settings {
		if err := s.admin.QueryRow(ctx, `SELECT coalesce(current_setting($1, true), 'unknown')`,
			setting.name).Scan(setting.into); err != nil {
			return nil, fmt.Errorf("read setting %s: %w", setting.name, err)
		}
	}
	if s.private != nil {
		if took, err := fdatasyncTime(s.private.Dir()); err == nil {
			m.FdatasyncMillis = new(millis(took))
		}
	}
	return m, nil
}

// Durable reports whether a commit on the server survives a crash. Results of other servers cannot
// be compared.
func (m *Machine) Durable() bool {
	return m.Fsync == "on" && m.SynchronousCommit != "off" && m.FullPageWrites == "on"
}

// fdatasyncTime overwrites the same 8 KiB repeatedly, as the log does, and returns the median of
// 101 tries.
func fdatasyncTime(dir string) (took time.Duration, err error) {
	file, err := os.CreateTemp(dir, "fdatasync-*")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(filepath.Clean(file.Name()))) }()
	page := make([]byte, 8192)
	var times []time.Duration
	for range 102 {
		begin := time.Now()
		if _, err := file.WriteAt(page, 0); err != nil {
			return 0, err
		}
		if err := fdatasync(file); err != nil {
			return 0, err
		}
		times = append(times, time.Since(begin))
	}
	times = times[1:] // the first one allocates the page
	slices.Sort(times)
	return times[len(times)/2], nil
}

func isPermissionDenied(err error) bool {
	failure, ok := errors.AsType[*pgconn.PgError](err)
	return ok && failure.Code == "42501"
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
