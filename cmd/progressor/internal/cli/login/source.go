package login

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// margin is how long before its expiry a token is refreshed.
const margin = 30 * time.Second

// Source returns the token of the login for an engine, and refreshes it before it expires. It is
// safe for concurrent use.
func (f File) Source(engine string) func(context.Context) (string, error) {
	s := &source{file: f, engine: engine}
	return s.token
}

type source struct {
	file   File
	engine string

	mu      sync.Mutex
	current Login
}

func (s *source) token(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.fresh() {
		return s.current.Token, nil
	}
	l, ok, err := s.file.Get(s.engine)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return "", errors.New("you are logged out: run progressor login")
	case !l.fresh():
		if l, err = s.refresh(ctx); err != nil {
			return "", err
		}
	}
	s.current = l
	return l.Token, nil
}

// fresh reports whether a token need not be refreshed.
func (l Login) fresh() bool { return time.Until(l.Expires) > margin }

// refresh stores a new token. Only one command refreshes a login, because an issuer may accept a
// refresh token only once.
func (s *source) refresh(ctx context.Context) (l Login, err error) {
	var failed error // after which there may be something to store
	err = s.file.change(func(all *logins) error {
		l = all.Logins[key(s.engine)]
		switch {
		case l.fresh(): // by another command
			return nil
		case l.Refresh == "":
			return fmt.Errorf("the login at %s has expired: run progressor login", l.URL)
		}
		if l, failed = l.refresh(ctx); failed != nil {
			failed = fmt.Errorf("%w: run progressor login if this remains", failed)
		}
		all.Logins[key(s.engine)] = l
		return nil
	})
	return l, errors.Join(failed, err)
}
