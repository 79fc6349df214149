package rpc

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
)

const (
	// maxHostShown limits how much of a rejected Host its error repeats.
	maxHostShown = 100
	// maxHostName is the maximum length of a name in DNS.
	maxHostName = 253
	localhost   = "localhost"
)

// dnsName matches a host name in lower case, or a domain with all its subdomains.
var dnsName = regexp.MustCompile(`^(\*\.)?(` + dnsLabel + `\.)*` + dnsLabel + `$`)

// nameBytes are the bytes of a host name in lower case.
const nameBytes = "abcdefghijklmnopqrstuvwxyz0123456789_-."

const dnsLabel = `[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?`

// Hosts are the names by which clients may address a server, in addition to localhost and all IP
// addresses. A nil *Hosts has no such names.
//
// A web page can point its own name to the address of an engine (DNS rebinding). The browser then
// treats the engine as the site of that page, and the page can read every response. But the Host
// header of such a request contains the name of the page.
type Hosts struct {
	names    map[string]bool
	suffixes []string // ".example.com" for *.example.com
}

// NewHosts returns the hosts of a server that listens on the address listen and that clients
// address by the given names. *.example.com means all subdomains of example.com.
func NewHosts(listen string, names ...string) (*Hosts, error) {
	h := &Hosts{names: map[string]bool{}}
	if host, _, err := net.SplitHostPort(listen); err == nil && host != "" {
		h.names[strings.TrimSuffix(strings.ToLower(host), ".")] = true
	}
	for _, name := range names {
		lower := strings.TrimSuffix(strings.ToLower(name), ".")
		if len(lower) > maxHostName || !dnsName.MatchString(lower) {
			return nil, fmt.Errorf("must be host names without a port, such as progressor.example.com or "+
				"*.example.com (got %.100q)", name)
		}
		if domain, ok := strings.CutPrefix(lower, "*"); ok {
			h.suffixes = append(h.suffixes, domain)
		} else {
			h.names[lower] = true
		}
	}
	return h, nil
}

// allow reports whether a client may address the server by this Host.
func (h *Hosts) allow(host string) bool {
	name, ok := hostName(host)
	if !ok {
		return false
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.Zone() == ""
	}
	if name == localhost {
		return true
	}
	if h == nil {
		return false
	}
	if h.names[name] {
		return true
	}
	for _, suffix := range h.suffixes {
		if label, ok := strings.CutSuffix(name, suffix); ok && label != "" && strings.Trim(label, nameBytes) == "" {
			return true
		}
	}
	return false
}

// hostName returns the name or address in a Host header in lower case, without the port and the
// final dot. It returns false if the header is malformed.
func hostName(host string) (string, bool) {
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		name, port = host[:i], host[i+1:]
	}
	for _, c := range []byte(port) {
		if c < '0' || c > '9' {
			return "", false
		}
	}
	if inner, bracket := strings.CutPrefix(name, "["); bracket {
		inner, closed := strings.CutSuffix(inner, "]")
		return inner, closed && strings.Contains(inner, ":")
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	return name, name != "" && !strings.ContainsAny(name, ":[]")
}

// Guard rejects requests whose Host is not one of the hosts. It calls rejected for each of them.
func (h *Hosts) Guard(next http.Handler, rejected func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.allow(r.Host) {
			rejected()
			refuse(w, r, fmt.Sprintf("host %q is not a name of this engine: use its IP address or localhost, or add "+
				"the name to --listen-hosts", r.Host[:min(len(r.Host), maxHostShown)]))
			return
		}
		next.ServeHTTP(w, r)
	})
}
