package spelling

import "testing"

func TestSimilar(t *testing.T) {
	flags := []string{"color", "address", "max-retry", "filter", "fairness-key", "wait-timeout"}
	for name, want := range map[string]string{
		"action": "", "zzzzzzzzz": "", "x": "", "get": "",
		"filterr": "filter", "colro": "color", "addrss": "address", "fitler": "filter",
		"max-retries-of-it": "max-retry", "fairness": "fairness-key", "wait": "wait-timeout",
	} {
		if got := Similar(name, flags); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := Similar("put", []string{"get", "list", "create"}); got != "" {
		t.Errorf("put: %q", got)
	}
}
