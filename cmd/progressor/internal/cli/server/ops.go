package server

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/progressor-engine/progressor/engine/rpc"
	"github.com/progressor-engine/progressor/processor/remote"
)

// opsFlags configure the listener for probes and scrapers.
type opsFlags struct {
	Listen string `placeholder:"ADDR" setting:"" help:"Address that serves /livez, /readyz and /metrics without TLS and without credentials, for probes and Prometheus. Clients must not reach it. Default: off."`
}

// maxOpsConnections limits the connections of probes and scrapers.
const maxOpsConnections = 100

func (f opsFlags) check(api string) error {
	if f.Listen == "" {
		return nil
	}
	if f.Listen == api {
		return errors.New("--ops.listen: must not be the address of --listen")
	}
	return checkListen("--ops.listen", f.Listen)
}

// opsServer is the listener for probes and scrapers. Until the engine has started, only /livez
// returns 200. A nil *opsServer is off: its methods do nothing.
type opsServer struct {
	listener net.Listener
	front    *rpc.Front
}

// open opens the listener. It returns nil if the listener is off.
func (f opsFlags) open(hosts *rpc.Hosts) (*opsServer, error) {
	if f.Listen == "" {
		return nil, nil
	}
	listener, err := listen("--ops.listen", f.Listen)
	if err != nil {
		return nil, err
	}
	return &opsServer{listener, rpc.NewFront(hosts)}, nil
}

func (s *opsServer) close() {
	if s != nil {
		_ = s.listener.Close() // it may be closed already
	}
}

func (s *opsServer) setPhase(phase string) {
	if s != nil {
		s.front.SetPhase(phase)
	}
}

// denyTo prevents an engine from sending requests to the listener.
func (s *opsServer) denyTo(egress *remote.Egress) {
	if s != nil {
		egress.DenyListener(s.listener.Addr())
	}
}

// use serves the pages of an engine that has started.
func (s *opsServer) use(cfg rpc.Config) {
	if s != nil {
		s.front.Use(rpc.NewOps(cfg))
	}
}

// serve serves until ctx ends.
func (s *opsServer) serve(ctx context.Context, n *node, log *slog.Logger) error {
	if s == nil {
		return nil
	}
	log.Info("serving probes and metrics", "url", "http://"+s.listener.Addr().String()+"/metrics")
	listener := rpc.NewConnections(maxOpsConnections).Limit(s.listener)
	return rpc.Serve(ctx, listener, rpc.Identify(s.front, n.api.requests, log), nil, log, n.drainTimeout())
}
