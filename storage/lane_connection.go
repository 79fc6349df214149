package storage

import (
	"context"
	"fmt"
	"time"
)

// connect opens the connection of the lane if it has none.
func (l *lane) connect() error {
	if l.conn != nil && !l.conn.IsClosed() {
		return nil
	}
	limit := connectTimeout + time.Duration(len(l.config.Fallbacks))*l.config.ConnectTimeout
	ctx, cancel := context.WithTimeout(l.store.stopped, limit)
	defer cancel()
	conn, err := l.store.connect(ctx, l.config)
	if err != nil {
		return fmt.Errorf("lane %d: connect: %w", l.number, err)
	}
	var pid uint32 // the PID of the protocol may be that of a pooler
	var began time.Time
	err = conn.QueryRow(ctx, "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()").
		Scan(&pid, &began)
	if err == nil {
		err = l.store.confirm(ctx, conn)
	}
	if err == nil {
		err = l.store.q.TakeLane(ctx, conn, laneLocks)
	}
	if err != nil {
		_ = conn.Close(ctx)
		return fmt.Errorf("lane %d: connect: %w", l.number, err)
	}
	encodeArrays(conn)
	l.conn, l.pid, l.began = conn, pid, began
	return nil
}

func (l *lane) disconnect() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx)
	l.conn = nil
}
