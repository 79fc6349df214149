package rpc

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// A client starts a bulk with a dry run, and follows it to its end.
func TestBulk(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	ctx := t.Context()
	processes := progressorv1connect.NewProcessServiceClient(http.DefaultClient, w.url)
	bulks := progressorv1connect.NewBulkServiceClient(http.DefaultClient, w.url)
	for _, id := range []string{"a", "b", "c"} {
		if _, err := processes.Start(ctx, &progressorv1.StartRequest{Namespace: "n", ProcessId: id}); err != nil {
			t.Fatal(err)
		}
	}
	order := &progressorv1.StartBulkRequest{
		Namespace: "n", Filter: `process_id = "a" OR process_id = "b"`, Verb: progressorv1.BulkVerb_BULK_VERB_SUSPEND,
		DryRun: true, Reason: "look",
	}
	dry, err := bulks.StartBulk(ctx, order)
	if err != nil || dry.GetBulk().GetMatched() != 2 || dry.GetBulk().GetBulkId() != "" {
		t.Fatalf("dry run: %v, %v", dry, err)
	}
	order.DryRun = false
	begun, err := bulks.StartBulk(ctx, order)
	if err != nil || begun.GetBulk().GetExpected() != 2 {
		t.Fatalf("start: %v, %v", begun, err)
	}
	id := begun.GetBulk().GetBulkId()
	patient, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	b, err := client.New(w.url).AwaitBulk(patient, &progressorv1.GetBulkRequest{Namespace: "n", BulkId: id},
		10*time.Millisecond, func(*progressorv1.Bulk) {})
	if err != nil {
		t.Fatal(err)
	}
	if b.GetDone() != 2 || b.GetRate() != 100 || b.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED {
		t.Errorf("%v", b)
	}
	list, err := bulks.ListBulks(ctx, &progressorv1.ListBulksRequest{})
	if err != nil || len(list.GetBulks()) != 1 || list.GetBulks()[0].GetBulkId() != id {
		t.Errorf("list: %v, %v", list, err)
	}
	_, err = bulks.CancelBulk(ctx, &progressorv1.CancelBulkRequest{Namespace: "n", BulkId: id})
	requireReason(t, err, connect.CodeFailedPrecondition, progressorv1.ErrorDetail_REASON_PROCESS_STATUS, "~bulk/"+id)
	_, err = bulks.GetBulk(ctx, &progressorv1.GetBulkRequest{Namespace: "n", BulkId: "nobody"})
	requireReason(t, err, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND, "~bulk/nobody")
	if !strings.HasSuffix(err.Error(), "bulk not found: n/nobody") {
		t.Errorf("%v", err)
	}
	audit, err := progressorv1connect.NewInsightServiceClient(http.DefaultClient, w.url).ListAudit(ctx,
		&progressorv1.ListAuditRequest{Namespace: "n"})
	if err != nil || len(audit.GetEntries()) < 3 ||
		audit.GetEntries()[0].GetDetails().GetFields()["via"].GetStringValue() != "~bulk/"+id {
		t.Errorf("audit: %v, %v", audit, err)
	}
}

// Errors of invalid requests name the field.
func TestBadBulks(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	for field, bodies := range map[string][]string{
		"namespace": {`{"filter":"status = ERROR","verb":"BULK_VERB_REMOVE"}`},
		"verb": {
			`{"namespace":"n","filter":"status = ERROR"}`, `{"namespace":"n","filter":"status = ERROR","verb":9}`,
			`{"namespace":"n","filter":"status = ERROR","verb":"BULK_VERB_UNSPECIFIED"}`,
		},
		"filter": {
			`{"namespace":"n","verb":"BULK_VERB_REMOVE"}`,
			`{"namespace":"n","verb":"BULK_VERB_REMOVE","filter":"taste = sweet","dryRun":true}`,
			`{"namespace":"n","verb":"BULK_VERB_REMOVE","filter":"` + strings.Repeat("x", 16385) + `"}`,
		},
		"rate": {
			`{"namespace":"n","verb":"BULK_VERB_REMOVE","filter":"status = ERROR","rate":-1}`,
			`{"namespace":"n","verb":"BULK_VERB_REMOVE","filter":"status = ERROR","rate":"Infinity"}`,
			`{"namespace":"n","verb":"BULK_VERB_REMOVE","filter":"status = ERROR","rate":1e-9}`,
		},
		"reason": {
			`{"namespace":"n","verb":"BULK_VERB_REMOVE","filter":"status = ERROR","reason":"` +
				strings.Repeat("x", 4097) + `"}`},
		"idempotency_key": {
			`{"namespace":"n","verb":"BULK_VERB_REMOVE","filter":"status = ERROR","idempotencyKey":"` +
				strings.Repeat("x", 257) + `"}`},
	} {
		for _, body := range bodies {
			status, answer := post(t, w.url+"/progressor.v1.BulkService/StartBulk", "application/json", body)
			if status != http.StatusBadRequest || !strings.Contains(answer, `"field":"`+field+`"`) {
				t.Errorf("%.100s: %d %s", body, status, answer)
			}
		}
	}
}
