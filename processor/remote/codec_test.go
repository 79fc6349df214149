package remote

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/internal/msgpack"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// greedy is a processor whose response has too many values. The handlers of package processor would
// not send it.
type greedy struct{ response *progressorv1.ProcessResponse }

func (g greedy) Process(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	return g.response, nil
}

// TestResponsesOfManyValues checks that a response with a million values is rejected before the
// values need much memory.
func TestResponsesOfManyValues(t *testing.T) { //nolint:paralleltest // measures memory
	list := &structpb.ListValue{Values: make([]*structpb.Value, process.MaxMessageBytes/16)}
	zero := structpb.NewNumberValue(0)
	for i := range list.Values {
		list.Values[i] = zero
	}
	metadata := &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewListValue(list)}}
	response := &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{
		Result: &progressorv1.Result{Metadata: metadata},
	}}
	plain := map[string]func(proto.Message) ([]byte, error){
		"application/json": protojson.Marshal, "application/msgpack": msgpack.Marshal,
	}
	bodies := map[string][]byte{}
	for contentType, marshal := range plain {
		body, err := marshal(response)
		if err != nil {
			t.Fatal(err)
		}
		bodies[contentType] = body
	}
	_, rpc := progressorv1connect.NewProcessorServiceHandler(greedy{response})
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		contentType := r.Header.Get("Content-Type")
		if body, ok := bodies[contentType]; ok {
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write(body)
			return
		}
		rpc.ServeHTTP(w, r)
	}))
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		p := dialed(t, way, server.URL)
		_, err := p.Process(t.Context(), request())
		if !processor.BadResponse(err) || !strings.Contains(err.Error(), "more than 200000 values") {
			t.Errorf("error: %v", err)
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	answer := &progressorv1.ProcessResponse{}
	if err := jsonEncoding.unmarshal(bodies["application/json"], answer); err == nil {
		t.Error("the response is accepted")
	}
	if err := msgpackEncoding.unmarshal(bodies["application/msgpack"], answer); err == nil {
		t.Error("the response is accepted")
	}
	runtime.ReadMemStats(&after)
	if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 60 {
		t.Errorf("%d MiB were allocated", mib)
	}
}
