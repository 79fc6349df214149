package remote

import (
	"bytes"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/internal/msgpack"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// FuzzJSONAnswer decodes an arbitrary body as the answer of a JSON processor. Either the body is a
// valid answer whose integers have lost no digits, or there is an error.
func FuzzJSONAnswer(f *testing.F) {
	for _, body := range []string{
		`{}`, ``, `null`, `[]`, `{"result":{}}`,
		`{"result":{"events":[{"payload":"aGk=","metadata":{"n":9007199254740993}}]}}`,
		`{"result":{"metadata":{"n":9007199254740992,"m":-9007199254740993.0}}}`,
		`{"failure":{"reason":"r","details":[12345678901234567890]}}`,
		`{"result":{"setTimer":{"after":"1.5s"}}}`, `{"result":{"setTimer":{"at":"2026-01-01T00:00:00Z"}}}`,
		"{\"rejection\":{\"reason\":\"\xff\"}}",
		`{"result":{"metadata":` + strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200) + `}}`,
		`{"result":{},"failure":{}}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		answer, err := jsonEncoding.read(
			&http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))})
		if err != nil {
			if answer != nil || !processor.BadResponse(err) {
				t.Fatalf("%v, %v", answer, err)
			}
			return
		}
		if processor.Check(progressorv1.TaskType_TASK_TYPE_CALL, answer) != nil {
			return // not usable, for example nested too deeply
		}
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		for {
			token, err := decoder.Token()
			if err != nil {
				break
			}
			if number, ok := token.(json.Number); ok {
				if n, ok := new(big.Int).SetString(number.String(), 10); ok && n.CmpAbs(big.NewInt(1<<53)) > 0 {
					t.Fatalf("%s was read, but has lost digits, in %s", number, body)
				}
			}
		}
	})
}

// FuzzMsgpackAnswer decodes an arbitrary body as the answer of a MessagePack processor. There is
// either an answer, or an error that reports a bad response.
func FuzzMsgpackAnswer(f *testing.F) {
	answer, err := processor.Result().Event([]byte("hi")).AuxState([]byte{0xff}).SetTimerAfter(time.Second).
		Metadata(map[string]any{"a": []any{1, "x", nil}}).Response(nil).Done()
	if err != nil {
		f.Fatal(err)
	}
	body, err := msgpack.Marshal(answer)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte{})
	f.Add([]byte{0x80})
	f.Add([]byte("\x81\xa6result\x81\xa9jobResult\xcf\x00\x20\x00\x00\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		answer, err := msgpackEncoding.read(
			&http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))})
		if err != nil && (answer != nil || !processor.BadResponse(err)) || err == nil && answer == nil {
			t.Fatalf("%v, %v", answer, err)
		}
	})
}
