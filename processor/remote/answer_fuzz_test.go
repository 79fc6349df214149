package remote

import (
	"bytes"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/processor"
)

// FuzzJSONAnswer reads any body as the answer of a processor that speaks JSON: it is an answer, or the error says that it is none. No
// integer has lost a digit.
func FuzzJSONAnswer(f *testing.F) {
	for _, body := range []string{
		`{}`, ``, `null`, `[]`, `{"result":{}}`, `{"result":{"events":[{"payload":"aGk=","metadata":{"n":9007199254740993}}]}}`,
		`{"result":{"metadata":{"n":9007199254740992,"m":-9007199254740993.0}}}`, `{"failure":{"reason":"r","details":[12345678901234567890]}}`,
		`{"result":{"setTimer":{"after":"1.5s"}}}`, `{"result":{"setTimer":{"at":"2026-01-01T00:00:00Z"}}}`, "{\"rejection\":{\"reason\":\"\xff\"}}",
		`{"result":{"metadata":` + strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200) + `}}`, `{"result":{},"failure":{}}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		answer, err := readJSON(&http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))})
		if err != nil {
			if answer != nil || !processor.BadResponse(err) {
				t.Fatalf("%v, %v", answer, err)
			}
			return
		}
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		for {
			token, err := decoder.Token()
			if err != nil {
				break
			}
			if number, ok := token.(json.Number); ok {
				if n, ok := new(big.Int).SetString(number.String(), 10); ok && n.CmpAbs(maxInteger) > 0 {
					t.Fatalf("%s was read and has lost digits, in %s", number, body)
				}
			}
		}
	})
}
