package login

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// margin is how long before its expiry a token is refreshed.
const margin = 30 * time.Second

var errLoggedOut = errors.New("you are logged out: run progressor login")

// Source returns a function that returns the token of the login for an engine, and refreshes it
// before it expires. The function is safe for concurrent use.
func (f File) Source(engine string) func(context.Context) (string, error) {
	s := &source{file: f, engine: engine, slot: make(chan struct{}, 1)}
	return s.token
}

type source struct {
	file   File
	engine string

	slot    chan struct{} // has an element while a request uses current
	current Login
}

func (s *source) token(ctx context.Context) (string, error) {
	select {
	case s.slot <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-s.slot }()
	if s.current.fresh() {
		return s.current.Token, nil
	}
	l, ok, err := s.file.Get(s.engine)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return "", errLoggedOut
	case !l.fresh():
		next, err := s.refresh(ctx)
		switch {
		case err == nil:
			l = next
		case errors.Is(err, errLoggedOut) || !l.valid():
			return "", err
		}
	}
	s.current = l
	return l.Token, nil
}

// fresh reports whether the token is valid for longer than margin.
func (l Login) fresh() bool { return time.Until(l.Expires) > margin }

// valid reports whether the token has not expired.
func (l Login) valid() bool { return time.Until(l.Expires) > 0 }

// refresh stores a new token. Only one command at a time refreshes a login, because an issuer may
// accept a refresh token only once.
func (s *source) refresh(ctx context.Context) (l Login, err error) {
	var failed error // the error of l.refresh; the file is written nevertheless
	err = s.file.change(ctx, func(all *logins) error {
		var ok bool
		l, ok = all.Logins[key(s.engine)]
		switch {
		case !ok: // another command has removed it
			return errLoggedOut
		case l.fresh(): // another command has refreshed it
			return nil
		case l.Refresh == "":
			return fmt.Errorf("the login at %s has expired: run progressor login", l.URL)
		}
		if l, failed = l.refresh(ctx); failed != nil {
			failed = fmt.Errorf("%w: run progressor login if this continues", failed)
		}
		all.Logins[key(s.engine)] = l
		return nil
	})
	return l, errors.Join(failed, err)
}
