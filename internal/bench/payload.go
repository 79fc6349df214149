package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// argsBytes is the size of the args of a request. The sizes of the response are those of
// processor.BenchNoop.
const argsBytes = 200

// payload is the data of an operation, both for the engine and for the baseline.
type payload struct {
	args, event, state, response []byte
}

func newPayload(ctx context.Context) payload {
	answer, err := processor.BenchNoop().Process(ctx, &progressorv1.ProcessRequest{})
	if err != nil {
		panic(fmt.Sprintf("bench: the no-op processor fails: %v", err))
	}
	result := answer.GetResult()
	return payload{args: noise(argsBytes), event: result.GetEvents()[0].GetPayload(), state: result.GetAuxState(),
		response: result.GetResponse()}
}

// noise returns the given number of bytes, a multiple of 8, that PostgreSQL cannot compress.
func noise(bytes int) []byte {
	b := make([]byte, 0, bytes)
	for n := uint64(0); len(b) < bytes; n++ {
		b = binary.LittleEndian.AppendUint64(b, scatter(n))
	}
	return b
}

// scatter spreads consecutive numbers over all of uint64, one to one (a step of splitmix64).
func scatter(n uint64) uint64 {
	n += 0x9E3779B97F4A7C15
	n = (n ^ n>>30) * 0xBF58476D1CE4E5B9
	n = (n ^ n>>27) * 0x94D049BB133111EB
	return n ^ n>>31
}

// processID returns the ID of the n-th process. It looks random, so that processes created one
// after the other are not neighbors in an index.
func processID(n uint64) string {
	text := strconv.FormatUint(scatter(n), 16)
	return "p-0000000000000000"[:18-len(text)] + text
}

// requestKey returns the idempotency key of the n-th request.
func requestKey(n uint64) string { return "k" + processID(n)[1:] + "-request" }

// processMetadata returns the searchable attributes of the n-th process: two fields of about 50
// bytes.
func processMetadata(n uint64) []byte {
	return []byte(`{"customer": "c-` + strconv.FormatUint(n%1000, 10) + `", "region": "eu", "channel": "web"}`)
}
