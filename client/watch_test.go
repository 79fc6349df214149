package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// WatchProcess answers each request with the next stream: its updates, and then its error.
func (s *scripted) WatchProcess(
	_ context.Context, req *progressorv1.WatchProcessRequest,
	stream *connect.ServerStream[progressorv1.WatchProcessResponse],
) error {
	s.mu.Lock()
	s.keys = append(s.keys, fmt.Sprint(req.GetAfterEventId()))
	if len(s.streams) == 0 {
		s.mu.Unlock()
		return unavailable()
	}
	next := s.streams[0]
	s.streams = s.streams[1:]
	s.mu.Unlock()
	for _, u := range next.updates {
		if err := stream.Send(u); err != nil {
			return err
		}
	}
	return next.end
}

// scriptedStream is the response to one request of WatchProcess.
type scriptedStream struct {
	updates []*progressorv1.WatchProcessResponse
	end     error
}

func event(id int64) *progressorv1.WatchProcessResponse {
	return &progressorv1.WatchProcessResponse{
		Update: &progressorv1.WatchProcessResponse_Event{Event: &progressorv1.Event{EventId: id}}}
}

// changed returns an update with a process. created and at are the seconds at which the process was
// created and its status changed.
func changed(status progressorv1.ProcessStatus, created, at int64) *progressorv1.WatchProcessResponse {
	return &progressorv1.WatchProcessResponse{
		Update: &progressorv1.WatchProcessResponse_Process{Process: &progressorv1.Process{
			Status: status, CreatedTime: timestamppb.New(time.Unix(created, 0)),
			StatusChangedTime: timestamppb.New(time.Unix(at, 0)),
		}}}
}

// Watch passes on each event and each new status once, even if the stream breaks.
func TestWatch(t *testing.T) {
	running, completed := progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
		progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED
	notFound := engineError(connect.CodeNotFound,
		&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND})
	refused := errors.New("enough")
	updates := func(u ...*progressorv1.WatchProcessResponse) []*progressorv1.WatchProcessResponse { return u }
	tests := []struct {
		name    string
		streams []scriptedStream
		stop    int // number of updates after which the caller stops
		want    []string
		after   []string // after_event_id of the requests
		err     error
		code    connect.Code
	}{
		{"to the end", []scriptedStream{
			{updates(event(3), changed(running, 1, 1), event(4), changed(completed, 1, 2)), nil}}, 0,
			[]string{"3", "RUNNING", "4", "COMPLETED"}, []string{"2"}, nil, 0},
		{"after breaks", []scriptedStream{
			{updates(event(3), changed(running, 1, 1)), unavailable()},
			{nil, unavailable()},
			{updates(changed(running, 1, 1), event(4)), unavailable()},
			{updates(changed(completed, 1, 2)), nil},
		}, 0, []string{"3", "RUNNING", "4", "COMPLETED"}, []string{"2", "3", "3", "4"}, nil, 0},
		{"removed during a break", []scriptedStream{{updates(changed(running, 1, 1)), unavailable()}, {nil, notFound}},
			0,
			[]string{"RUNNING"}, []string{"2", "2"}, nil, 0},
		{"removed and started again during a break",
			[]scriptedStream{{updates(changed(running, 1, 1)), unavailable()}, {updates(changed(running, 5, 5)), nil}},
			0,
			[]string{"RUNNING"}, []string{"2", "2"}, nil, 0},
		{"not found", []scriptedStream{{nil, notFound}}, 0, nil, []string{"2"}, nil, connect.CodeNotFound},
		{"stopped by the caller", []scriptedStream{{updates(event(3), event(4)), nil}}, 1, []string{"3"}, []string{"2"},
			refused, 0},
		{"no attempts left", []scriptedStream{{updates(event(3)), unavailable()}}, 0, []string{"3"},
			[]string{"2", "3", "3", "3"}, nil, connect.CodeUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &scripted{streams: tt.streams}
			var got []string
			err := serve(t, s).Watch(t.Context(),
				&progressorv1.WatchProcessRequest{Namespace: "n", ProcessId: "p", AfterEventId: 2},
				func(u *progressorv1.WatchProcessResponse) error {
					if e := u.GetEvent(); e != nil {
						got = append(got, fmt.Sprint(e.GetEventId()))
					} else {
						got = append(got, u.GetProcess().GetStatus().String()[len("PROCESS_STATUS_"):])
					}
					if len(got) == tt.stop {
						return refused
					}
					return nil
				})
			if !slices.Equal(got, tt.want) || !slices.Equal(s.keys, tt.after) {
				t.Errorf("got %q by requests after %q, want %q after %q", got, s.keys, tt.want, tt.after)
			}
			if tt.code != 0 && connect.CodeOf(err) != tt.code || tt.code == 0 && !errors.Is(err, tt.err) {
				t.Errorf("err = %v", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &scripted{streams: []scriptedStream{{updates(event(1)), unavailable()}}}
	err := serve(t, s).Watch(ctx, &progressorv1.WatchProcessRequest{},
		func(*progressorv1.WatchProcessResponse) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) || client.Detail(err) != nil {
		t.Errorf("err = %v, want context.Canceled", err)
	}
}
