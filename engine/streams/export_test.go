package streams

import "time"

// ReadOnlyWhenWoken lets streams read again only after a commit or a notice.
func (s *Streams) ReadOnlyWhenWoken() { s.pace.Min, s.pace.Max = time.Hour, time.Hour }
