package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/progressor-engine/progressor/engine/rpc"
)

// serve serves net/http/pprof until ctx ends, if enabled.
func (d debugFlags) serve(ctx context.Context, hosts *rpc.Hosts, log *slog.Logger) error {
	if d.Listen == "" {
		return nil
	}
	listener, err := listen("--debug.listen", d.Listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: profiles(hosts), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	log.Info("serving profiles", "url", "http://"+listener.Addr().String()+"/debug/pprof/")
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve profiles: %w", err)
	}
	return nil
}

// profiles returns the handler for net/http/pprof. It does not serve the command line, which may
// contain the database password.
func profiles(hosts *rpc.Hosts) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the command line is not served, because it may contain a password; "+
			"progressor config print shows the settings", http.StatusNotFound)
	})
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return hosts.Guard(mux, func() {})
}
