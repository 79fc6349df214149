package main

import (
	"strings"
	"testing"
)

func TestFinish(t *testing.T) {
	const generated = `
paths:
  /progressor.v1.ProcessorService/Process:
    post:
      parameters:
        - name: Connect-Protocol-Version
          required: true
      requestBody:
        content:
          application/json:
            schema: {$ref: '#/a'}
components:
  schemas:
    google.protobuf.Duration: {type: string, format: duration}
    a:
      properties:
        b: {type: string, format: byte, maxLength: 10, description: "bytes.const = []\n"}
        c: {type: string, format: byte, description: "of the caller\nbytes.const = []\n"}
`
	finished, err := finish([]byte(generated))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"application/msgpack:\n            schema: {$ref: '#/a'}", "servers:\n      - url: http://127.0.0.1:9000", "maxLength: 16, contentEncoding: base64}",
		"description: \"of the caller\", contentEncoding: base64}", "pattern: ^-?",
	} {
		if !strings.Contains(string(finished), want) {
			t.Errorf("%s is missing in\n%s", want, finished)
		}
	}
	for _, gone := range []string{"required", "format: duration", "bytes.const"} {
		if strings.Contains(string(finished), gone) {
			t.Errorf("%s is still in\n%s", gone, finished)
		}
	}
	if again, err := finish(finished); err != nil || string(again) != string(finished) {
		t.Errorf("finished again: %v\n%s", err, again)
	}
	for _, broken := range []string{"", ":", "paths: {}", "paths: {/a: {}}"} {
		if _, err := finish([]byte(broken)); err == nil {
			t.Errorf("%q is finished", broken)
		}
	}
}
