package server

import (
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/processor/remote"
)

// outgoingFlags configure the addresses that crons and sinks may call.
type outgoingFlags struct {
	Allow string `placeholder:"NETWORKS" setting:"" help:"Private addresses that crons and sinks may call, separated by commas: loopback, private, prefixes such as 10.0.0.0/8, and addresses such as 10.0.0.5 or 10.0.0.5:8080. Dev always allows loopback. Default: none."`
}

func (f outgoingFlags) check() error {
	if _, err := remote.ParseNetworks(f.Allow); err != nil {
		return fmt.Errorf("--outgoing.allow: %w", err)
	}
	return nil
}

// egress returns the addresses that crons and sinks may call: all except the listeners of this
// node, the database, and the private addresses that are not allowed.
func (n *node) egress() (*remote.Egress, error) {
	networks, err := remote.ParseNetworks(n.outgoing.Allow)
	if err != nil {
		return nil, fmt.Errorf("--outgoing.allow: %w", err)
	}
	database, err := pgconn.ParseConfig(n.db.DSN)
	if err != nil {
		return nil, checkDSN(n.db.DSN) // the error of pgx may contain the password
	}
	e := &remote.Egress{}
	e.AllowOnly(networks)
	e.DenyDatabase(database.Host, database.Port)
	for _, other := range database.Fallbacks {
		e.DenyDatabase(other.Host, other.Port)
	}
	e.DenyListener(n.listener.Addr())
	n.ops.denyTo(e)
	if profiles, err := net.ResolveTCPAddr("tcp", n.debug.Listen); err == nil {
		e.DenyListener(profiles)
	}
	return e, nil
}
