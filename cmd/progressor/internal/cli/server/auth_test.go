package server

import (
	"strings"
	"testing"
)

// The broker of dev has no authentication, so it listens only on loopback addresses, unless
// --auth.mode is none.
func TestKafkaListens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		listen, mode, want string
	}{
		{"127.0.0.1:9092", authAuto, ""}, {"localhost:0", authRequired, ""}, {"0.0.0.0:9092", authNone, ""},
		{"0.0.0.0:9092", authAuto, "--kafka-listen: must be a loopback address"},
		{"192.0.2.1:9092", authRequired, "--kafka-listen: must be a loopback address"},
		{"localhost", authNone, "--kafka-listen: listen address"},
	} {
		err := (&devKafkaFlags{Run: true, Listen: c.listen}).check(c.mode)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s with %s: %v", c.listen, c.mode, err)
		}
		if err := (&devKafkaFlags{Listen: c.listen}).check(c.mode); err != nil {
			t.Errorf("without --kafka: %v", err)
		}
	}
}

// Without a setting, only an engine on loopback serves clients without a key.
func TestModes(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		"127.0.0.1:8080": authNone, "127.9.9.9:1": authNone, "localhost:1": authNone, "[::1]:1": authNone,
		":8080": authRequired, "0.0.0.0:8080": authRequired, "[::]:8080": authRequired, "192.0.2.1:1": authRequired,
		"example.com:1": authRequired, "localhost.example.com:1": authRequired,
	} {
		for _, f := range []authFlags{{}, {Mode: authAuto}} {
			if got := f.mode(listen); got != want {
				t.Errorf("%s: %s, want %s", listen, got, want)
			}
		}
		for _, mode := range []string{authRequired, authLocal, authNone} {
			if got := (authFlags{Mode: mode}).mode(listen); got != mode {
				t.Errorf("%s with %s: %s", listen, mode, got)
			}
		}
	}
}
