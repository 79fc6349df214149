package server

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// demoFlow is the template of the demo. Its jobs run in the namespace echo, so it needs no worker.
const demoFlow = `
namespace: demo
type: order
name: An order, from its check to its parcels
description: >-
  An order is checked, reserved, charged and shipped, parcel by parcel; a large one needs the
  approval of a person.
payload_schema:
  type: object
  required: [order, total, parcels]
  properties:
    order: {type: string, minLength: 1}
    total: {type: number, exclusiveMinimum: 0, description: "From 1000, a person must approve the order"}
    address: {type: string, description: "Without an address, the parcels cannot be
      shipped, and the completed steps are undone"}
    parcels:
      type: array
      minItems: 1
      items:
        type: object
        required: [sku, count]
        properties:
          sku: {type: string}
          count: {type: integer, minimum: 1}
step_order: GRAPH
steps:
  - step_id: check
    job: {namespace: echo}
  - step_id: reserve
    depends_on: [check]
    job: {namespace: echo}
    compensation: {namespace: echo, name: release}
  - step_id: approve
    depends_on: [check]
    condition: payload.total >= 1000.0
    wait:
      kind: HUMAN
      title: Approve order ${payload.order} of ${payload.total}
      assignees: [sales]
      due: 48h
      result_schema:
        type: object
        required: [approved]
        properties:
          approved: {const: true}
          note: {type: string}
  - step_id: charge
    depends_on: [reserve, approve]
    input: {order: "${payload.order}", amount: "${payload.total}"}
    job: {namespace: echo}
    compensation: {namespace: echo, name: refund}
  - step_id: pack
    depends_on: [charge]
    delay: {duration: 3s}
  - step_id: ship
    depends_on: [pack]
    for_each: {items: payload.parcels, max_running: 2}
    input: {parcel: "${item}", to: "${payload.address}", label: "${payload.order}-${index}"}
    job: {namespace: echo}
  - step_id: notify
    depends_on: [ship]
    join_rule: ALL_ENDED
    ignore_failure: true
    input: {order: "${payload.order}", shipped: "${steps.ship.status == 'succeeded'}"}
    job: {namespace: echo}
result: {order: "${payload.order}"}
`

// demoRuns are the runs of the template: one succeeds, one waits for a person, and one fails and is
// compensated.
var demoRuns = []string{
	`{"order": "A-1", "total": 40, "address": "Lime Street 1", "parcels": [{"sku": "tea", "count": 2}, ` +
		`{"sku": "mug", "count": 1}]}`,
	`{"order": "A-2", "total": 1200, "address": "Lime Street 2", "parcels": [{"sku": "samovar", "count": 1}]}`,
	`{"order": "A-3", "total": 90, "parcels": [{"sku": "tea", "count": 1}, {"sku": "cake", "count": 3}]}`,
}

// beginDemoFlow stores the template of the demo and starts its runs, unless the template exists.
func beginDemoFlow(ctx context.Context, all *flows.Flows) error {
	t := &progressorv1.Template{}
	if err := protoyaml.Unmarshal([]byte(demoFlow), t); err != nil {
		return fmt.Errorf("template of the demo: %w", err)
	}
	_, err := all.GetTemplate(ctx, &progressorv1.GetTemplateRequest{Namespace: t.GetNamespace(), Type: t.GetType()})
	if !errors.Is(err, process.ErrTemplateNotFound) {
		return err
	}
	if _, err := all.PutTemplate(ctx, &progressorv1.PutTemplateRequest{Template: t}); err != nil {
		return fmt.Errorf("template of the demo: %w", err)
	}
	for _, payload := range demoRuns {
		v := &structpb.Value{}
		if err := protojson.Unmarshal([]byte(payload), v); err != nil {
			return fmt.Errorf("run of the demo: %w", err)
		}
		_, err := all.Start(ctx, &progressorv1.StartRunRequest{
			Namespace: t.GetNamespace(), Type: t.GetType(),
			RunId: v.GetStructValue().GetFields()["order"].GetStringValue(), Scope: "customer", ScopeId: "ada",
			Payload: v,
		}, process.Actor{Name: "demo"})
		if err != nil && !errors.Is(err, process.ErrRunExists) {
			return fmt.Errorf("run of the demo: %w", err)
		}
	}
	return nil
}
