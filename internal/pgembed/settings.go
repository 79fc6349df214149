//go:build unix

package pgembed

import (
	"maps"
	"slices"
	"strings"
)

// defaultSettings suit a machine with two cores that PostgreSQL shares with the engine. Commits are
// durable.
var defaultSettings = map[string]string{
	"shared_buffers":  "256MB",
	"max_connections": "100",
	"jit":             "off", // compiling a short statement takes longer than it saves

	// New WAL files are not filled with zeros, and many fit before a checkpoint is forced.
	"wal_init_zero":       "off",
	"wal_compression":     "off",
	"min_wal_size":        "512MB",
	"max_wal_size":        "4GB",
	"checkpoint_timeout":  "15min",
	"track_wal_io_timing": "off",

	"autovacuum_naptime": "10s", // schedule and running collect dead rows quickly
	"timezone":           "UTC",

	"logging_collector": "off", // the log is the server's stderr
	"log_destination":   "stderr",
	"log_timezone":      "UTC",
	"log_line_prefix":   "%m [%p] ",
}

var unsafeSettings = map[string]string{"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

// port is part of the name of the socket. The server does not listen on TCP.
const port = "5432"

// arguments returns the arguments of the postmaster. Config.Settings cannot change its address,
// because DSN depends on it.
func (s *Server) arguments() []string {
	settings := maps.Clone(defaultSettings)
	if s.config.Unsafe {
		maps.Copy(settings, unsafeSettings)
	}
	maps.Copy(settings, s.config.Settings)
	settings["port"], settings["unix_socket_directories"] = port, s.place.socketDir
	settings["listen_addresses"] = ""
	arguments := []string{"-D", s.place.clusterDir()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		arguments = append(arguments, "-c", name+"="+settings[name])
	}
	return arguments
}

// quoteDSN quotes a value of a keyword=value connection string if needed.
func quoteDSN(value string) string {
	if plainPath.MatchString(value) {
		return value
	}
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}
