package server

import (
	"errors"
	"log/slog"
	"net"
)

// notify sends the state of the program to systemd, if systemd started the program with
// Type=notify.
func (n *node) notify(log *slog.Logger, state string) {
	socket, _ := n.getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	conn, err := net.Dial("unixgram", socket)
	if err == nil {
		_, err = conn.Write([]byte(state))
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		log.Warn("cannot notify systemd", "error", err)
	}
}
