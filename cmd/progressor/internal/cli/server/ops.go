package server

import (
	"context"
	"errors"
	"net"

	"github.com/progressor-engine/progressor/engine/rpc"
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
// returns 200.
type opsServer struct {
	listener net.Listener // nil if it is off
	front    *rpc.Front
}

func (f opsFlags) open(hosts *rpc.Hosts) (opsServer, error) {
	s := opsServer{front: rpc.NewFront(hosts)}
	var err error
	if f.Listen != "" {
		s.listener, err = listen("--ops.listen", f.Listen)
	}
	return s, err
}

// serve serves until ctx ends.
func (s opsServer) serve(ctx context.Context, n *node) error {
	if s.listener == nil {
		return nil
	}
	n.log.Info("serving probes and metrics", "url", "http://"+s.listener.Addr().String()+"/metrics")
	listener := rpc.NewConnections(maxOpsConnections).Limit(s.listener)
	return rpc.Serve(ctx, listener, s.front, nil, n.log, n.drainTimeout())
}
