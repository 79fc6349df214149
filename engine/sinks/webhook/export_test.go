package webhook

import (
	"encoding/base64"
	"net/http"
	"strings"
	"time"
)

// Sign returns the headers of a request that is signed with secrets.
func Sign(secrets []string, id string, at time.Time, body []byte) http.Header {
	d := &deliverer{}
	for _, secret := range secrets {
		key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
		d.keys = append(d.keys, key)
	}
	header := http.Header{}
	d.sign(header, id, at, body)
	return header
}
