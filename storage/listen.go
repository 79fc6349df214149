package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

const (
	// listenCheck is how long a listening connection may be silent before it is checked, because a
	// dead peer sends nothing.
	listenCheck = 30 * time.Second
	// listenRetry is the longest pause before another try to connect.
	listenRetry = 5 * time.Second
)

// Listen receives notifications (NOTIFY) until ctx is cancelled or the store is closed. For each
// notification, it calls the function that heard has for the channel, with the payload. It uses its
// own connection and reconnects when this connection breaks. It calls up(true) when it starts to
// listen, and up(false) when it stops or the connection is lost. Notifications that are sent in
// between are lost. On a portable database, it does not listen, and calls up(false) once.
func (s *Store) Listen(ctx context.Context, heard map[string]func(payload string), up func(bool)) {
	if s.portable {
		up(false)
		select {
		case <-ctx.Done():
		case <-s.stopped.Done():
		}
		return
	}
	wait := 50 * time.Millisecond
	for ctx.Err() == nil && s.stopped.Err() == nil {
		listened, err := s.listenOnce(ctx, heard, up)
		if listened {
			wait = 50 * time.Millisecond
		}
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("the connection for LISTEN is lost", "retry_in", wait, "error", err)
		select {
		case <-ctx.Done():
		case <-s.stopped.Done():
		case <-time.After(wait):
			wait = min(2*wait, listenRetry)
		}
	}
}

// listenOnce listens until the connection breaks. listened is false if it could not start to
// listen.
func (s *Store) listenOnce(
	ctx context.Context, heard map[string]func(string), up func(bool),
) (listened bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stopped, cancel)()
	conn, err := s.connect(ctx, s.listen)
	if err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	defer func() {
		end, cancelEnd := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancelEnd()
		_ = conn.Close(end)
	}()
	for channel := range heard {
		if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return false, err
		}
	}
	up(true)
	defer up(false)
	for {
		silence, cancelSilence := context.WithTimeout(ctx, listenCheck)
		notice, err := conn.WaitForNotification(silence)
		cancelSilence()
		switch {
		case err == nil:
			if f := heard[notice.Channel]; f != nil {
				f(notice.Payload)
			}
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return true, err
		default:
			alive, cancelAlive := context.WithTimeout(ctx, listenRetry)
			err = conn.Ping(alive)
			cancelAlive()
			if err != nil {
				return true, err
			}
		}
	}
}

// HasNotices reports whether the database sends NOTIFYs. A portable database does not.
func (s *Store) HasNotices() bool { return !s.portable }

// SendNotice sends a NOTIFY to the nodes that listen on a channel. On a portable database, it sends
// nothing, because nodes poll instead.
func (s *Store) SendNotice(ctx context.Context, channel string) error {
	if s.portable {
		return nil
	}
	return mapped("notify "+channel, s.q.SendNotice(ctx, s.general, channel))
}

// SendNotices is like SendNotice, with one NOTIFY for each payload.
func (s *Store) SendNotices(ctx context.Context, channel string, payloads []string) error {
	if s.portable {
		return nil
	}
	err := s.q.SendNotices(ctx, s.general, dbsqlc.SendNoticesParams{Channel: channel, Payloads: payloads})
	return mapped("notify "+channel, err)
}
