package remote

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

var quiet = slog.New(slog.DiscardHandler)

// TestDialRefuses checks that invalid configurations are rejected with the path of the field,
// without passwords in the error.
func TestDialRefuses(t *testing.T) {
	const url = "http://127.0.0.1:9"
	with := func(name, value string) *progressorv1.ConnectProcessor {
		return &progressorv1.ConnectProcessor{Url: url, Headers: map[string]string{name: value}}
	}
	tests := map[string]struct {
		cfg   *progressorv1.ConnectProcessor
		field string
		says  string
	}{
		"nothing":      {nil, fieldURL, "empty"},
		"no url":       {&progressorv1.ConnectProcessor{Url: "http://s3cret:s3cret@\x7f"}, fieldURL, "must be a URL"},
		"scheme":       {&progressorv1.ConnectProcessor{Url: "ftp://h"}, fieldURL, "http://"},
		"no scheme":    {&progressorv1.ConnectProcessor{Url: "localhost:80"}, fieldURL, "http://"},
		"no host":      {&progressorv1.ConnectProcessor{Url: "http:///path"}, fieldURL, "host"},
		"password":     {&progressorv1.ConnectProcessor{Url: "http://u:s3cret@h/"}, fieldURL, "Authorization"},
		"fragment":     {&progressorv1.ConnectProcessor{Url: "http://h/#x"}, fieldURL, "fragment"},
		"link-local":   {&progressorv1.ConnectProcessor{Url: "http://169.254.169.254/"}, fieldURL, "link-local"},
		"link-local 6": {&progressorv1.ConnectProcessor{Url: "http://[fe80::1%25eth0]/"}, fieldURL, "link-local"},
		"query":        {&progressorv1.ConnectProcessor{Url: url + "/?a=b"}, fieldURL, "query"},
		"encoding":     {&progressorv1.ConnectProcessor{Url: url, Encoding: 99}, fieldEncoding, "99"},
		"protocol":     {&progressorv1.ConnectProcessor{Url: url, Protocol: 99}, fieldProtocol, "99"},
		"more urls": {&progressorv1.ConnectProcessor{
			Url: url, MoreUrls: []string{url, "http://u:s3cret@h/"},
		}, fieldMoreURLs + "[1]", "Authorization"},
		"query of more urls": {&progressorv1.ConnectProcessor{
			Url: url, MoreUrls: []string{url + "/?a=b"},
		}, fieldMoreURLs + "[0]", "query"},
		"json grpc": {&progressorv1.ConnectProcessor{
			Url: url, Encoding: encodingJSON, Protocol: protocolGRPC,
		}, fieldProtocol, "got ENCODING_JSON"},
		"msgpack grpc": {&progressorv1.ConnectProcessor{
			Url: url, Encoding: encodingMsgpack, Protocol: protocolGRPC,
		}, fieldProtocol, "got ENCODING_MSGPACK"},
		"header name":  {with("a b", "s3cret"), fieldHeaders, "header name"},
		"header value": {with("X-Key", "s3cret\r\nHost: x"), fieldHeaders + ".X-Key", "control"},
		"content type": {with("content-type", "s3cret"), fieldHeaders + ".content-type", "transport"},
		"connect":      {with("Connect-Timeout-Ms", "s3cret"), fieldHeaders + ".Connect-Timeout-Ms", "transport"},
		"grpc":         {with("grpc-timeout", "s3cret"), fieldHeaders + ".grpc-timeout", "transport"},
		"idempotency":  {with("Idempotency-Key", "s3cret"), fieldHeaders + ".Idempotency-Key", "transport"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Dial("shop", test.cfg, 10, nil)
			invalid, ok := errors.AsType[*process.InvalidError](err)
			if !ok || invalid.Field != test.field || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want field %s and %q", err, test.field, test.says)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %v contains a secret", err)
			}
		})
	}
}
