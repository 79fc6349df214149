package bench

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"strings"
)

// plain returns a request in JSON.
func plain(path, text string) body {
	return body{path: path, contentType: "application/json", data: []byte(text)}
}

// expandBodies prepares small bodies that become large when they are decompressed: lists of many
// values in JSON and MessagePack, and more bytes than a request may have.
func (a *attacked) expandBodies(context.Context) error {
	list := strings.TrimSuffix(strings.Repeat("0,", expandedBytes/2-100), ",")
	maps := append([]byte("\x81\xa8metadata\x81\xa1a\xdd\x00\xff\x00\x00"), bytes.Repeat([]byte{0x80}, 0xff0000)...)
	a.senders, a.bodies = expandingClients, []body{
		plain(startPath, `{"namespace":"`+attackerName+`","processId":"p","metadata":{"a":[`+list+`]}}`),
		{path: startPath, contentType: "application/msgpack", data: maps},
		plain(startPath, strings.Repeat(" ", 8*expandedBytes)),
	}
	for n := range a.bodies {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(a.bodies[n].data); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		a.bodies[n].encoding, a.bodies[n].data = "gzip", packed.Bytes()
	}
	return nil
}

// expandResponse prepares the answer of a processor with as many values as fit.
func (a *attacked) expandResponse(context.Context) error {
	list := strings.TrimSuffix(strings.Repeat("0,", expandedBytes/2-100), ",")
	a.answers = []byte(`{"result":{"metadata":{"a":[` + list + `]}}}`)
	return nil
}

// longNumber prepares a request with a number that an error must not repeat.
func (a *attacked) longNumber(context.Context) error {
	a.senders, a.bodies = numberClients, []body{plain(startPath, `{"namespace":"`+attackerName+
		`","processId":"p","priority":`+strings.Repeat("1", expandedBytes-1000)+`}`)}
	return nil
}

// manyPatterns prepares a template whose schema takes a long time to compile.
func (a *attacked) manyPatterns(context.Context) error {
	var properties strings.Builder
	for i := range templatePatterns {
		fmt.Fprintf(&properties, `"p%d":{"pattern":"^(a|b|c|dd){1,9}x%d$"},`, i, i)
	}
	text := `{"template":{"namespace":"` + attackerName + workSuffix + `","type":"t","payloadSchema":{"properties":{` +
		strings.TrimSuffix(properties.String(), ",") + `}},"steps":[{"stepId":"a","wait":{}}]}}`
	a.senders, a.bodies = templateClients, []body{plain("/progressor.v1.FlowService/PutTemplate", text)}
	return nil
}
