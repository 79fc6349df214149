package process

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type putCmd struct {
	cli.ProcessArgs
	cli.ClientFlags
	File     string   `short:"f" placeholder:"FILE|-" help:"A PutProcessRequest, or the output of get -o json, as JSON or YAML; payloads in base64."`
	Status   string   `placeholder:"STATUS" complete:"running,error" help:"Status: running or error. Default: the status in the file, or running."`
	Detail   string   `placeholder:"TEXT" help:"Reason of the status error, shown as the detail of the process."`
	AuxState string   `placeholder:"TEXT|@FILE" help:"State of the processor."`
	Metadata string   `placeholder:"JSON|@FILE" help:"Searchable attributes, a JSON object."`
	Event    []string `field:"history" sep:"none" placeholder:"TEXT|@FILE" help:"Payload of the next event; can be repeated."`
	Timer    string   `field:"timers" placeholder:"TIME|DURATION" help:"Due time of the default timer."`
}

func (putCmd) Help() string {
	return `Put imports a process with its history and timers, without calling the processor. Flags add to the
values of the file or replace them. The process is imported as RUNNING or ERROR; if the file has
another status, set --status.

    progressor put demo order-9 --event '{"type":"reserved"}' --aux-state '{"state":"reserved","total":100}' --timer 1h
    progressor get demo order-1 -o json | progressor put demo order-1-copy -f - --status running`
}

func (c *putCmd) Run(a *cli.App) error {
	req := &progressorv1.PutProcessRequest{}
	if c.File != "" {
		text, err := a.ReadFile("--file", c.File)
		if err != nil {
			return err
		}
		if req, err = putRequestFrom(text); err != nil {
			return cli.UsageError(fmt.Errorf("--file %s: %w", c.File, err))
		}
	}
	req.Namespace, req.ProcessId = c.NS, c.ID
	if err := c.apply(a, req); err != nil {
		return err
	}
	return cli.Show(a, c, c.Client().Process.PutProcess, req, printProcess)
}

// apply sets the values of the flags in the request.
func (c *putCmd) apply(a *cli.App, req *progressorv1.PutProcessRequest) error {
	err := cli.SetEnum("--status", c.Status, func(s progressorv1.ProcessStatus) { req.Status = s })
	if err != nil {
		return err
	}
	switch s := req.GetStatus(); s {
	case progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING, progressorv1.ProcessStatus_PROCESS_STATUS_ERROR,
		progressorv1.ProcessStatus_PROCESS_STATUS_UNSPECIFIED:
	default:
		return cli.UsageError(
			fmt.Errorf("--status: must be running or error: a process cannot be put as %s, which the file contains",
				output.Enum(s)))
	}
	if req.GetStatus() == 0 {
		req.Status = progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING
	}
	if c.Detail != "" {
		req.Detail = c.Detail
	}
	if c.AuxState != "" {
		if req.AuxState, err = a.Payload("--aux-state", c.AuxState); err != nil {
			return err
		}
	}
	if c.Metadata != "" {
		if req.Metadata, err = a.Metadata(c.Metadata); err != nil {
			return err
		}
	}
	for _, e := range c.Event {
		payload, err := a.Payload("--event", e)
		if err != nil {
			return err
		}
		req.History = append(req.History,
			&progressorv1.Event{EventId: int64(len(req.GetHistory()) + 1), Payload: payload})
	}
	if c.Timer != "" {
		at, err := cli.TimeFrom("--timer", c.Timer)
		if err != nil {
			return err
		}
		req.Timers = append(req.Timers, &progressorv1.Timer{FireTime: at})
	}
	return nil
}

// putRequestFrom parses a PutProcessRequest, or converts a GetProcessResponse to one.
func putRequestFrom(text []byte) (*progressorv1.PutProcessRequest, error) {
	root, err := protoyaml.Parse(text)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return nil, errors.New("the file is empty")
	}
	if len(root.Content) != 2 || root.Content[0].Value != "process" {
		req := &progressorv1.PutProcessRequest{}
		return req, protoyaml.UnmarshalNode(root, req, "")
	}
	got := &progressorv1.GetProcessResponse{}
	if err := protoyaml.UnmarshalNode(root, got, ""); err != nil {
		return nil, err
	}
	p := got.GetProcess()
	req := &progressorv1.PutProcessRequest{
		Status: p.GetStatus(), Detail: p.GetDetail(), AuxState: p.GetAuxState(), Metadata: p.GetMetadata(),
	}
	for _, e := range p.GetHistory() {
		e = proto.CloneOf(e)
		e.TaskId = 0 // specific to the engine that has exported the process
		req.History = append(req.History, e)
	}
	for _, t := range p.GetTimers() {
		t = proto.CloneOf(t)
		t.Status = 0
		req.Timers = append(req.Timers, t)
	}
	return req, nil
}
