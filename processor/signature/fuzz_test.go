package signature

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// FuzzVerify changes a signed request. A request is accepted only if its ID, timestamp and body are
// unchanged. SIGNATURE in the header stands for the valid signature.
func FuzzVerify(f *testing.F) {
	key, err := ParseKey("whsec_" + strings.Repeat("A", 32))
	if err != nil {
		f.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	const id, body = "msg_1", "1800000001.{}"
	timestamp := strconv.FormatInt(now.Unix(), 10)
	signed := http.Header{}
	Sign(signed, id, now, []byte(body), key)
	valid := signed.Get(HeaderSignature)
	for _, seed := range [][4]string{
		{id, timestamp, "SIGNATURE", body}, {id, timestamp, "v1a,x SIGNATURE", body}, {id, timestamp, valid[:20], body},
		{id, "0" + timestamp, "SIGNATURE", body}, {id + "." + timestamp, "1800000001", "SIGNATURE", "{}"},
		{id, timestamp, "v1,", body}, {"", timestamp, "SIGNATURE", body}, {id, "-1", "SIGNATURE", body},
		{id, timestamp, "SIGNATURE=", body}, {id, "18446744073709551616", "v1,SIGNATURE", body},
	} {
		f.Add(seed[0], seed[1], seed[2], []byte(seed[3]))
	}
	f.Fuzz(func(t *testing.T, sentID, sentTime, signatures string, sent []byte) {
		header := http.Header{}
		header.Set(HeaderID, sentID)
		header.Set(HeaderTimestamp, sentTime)
		header.Set(HeaderSignature, strings.ReplaceAll(signatures, "SIGNATURE", valid))
		err := Verify(header, sent, now, key)
		same := sentID == id && sentTime == timestamp && string(sent) == body
		if err == nil && !same {
			t.Errorf("%q %q %q is accepted with %q", sentID, sentTime, sent, signatures)
		}
		if same && signatures == "SIGNATURE" && err != nil {
			t.Errorf("the request as it was signed: %v", err)
		}
		if Verify(header, sent, now, Key{}) == nil {
			t.Error("Verify accepts the request with the zero Key")
		}
	})
}
