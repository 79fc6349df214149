package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/crons"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// cronService serves CronService.
type cronService struct {
	crons *crons.Crons
}

// CreateCron creates a cron.
func (s *cronService) CreateCron(
	ctx context.Context, r *progressorv1.CreateCronRequest,
) (*progressorv1.CreateCronResponse, error) {
	if err := s.crons.CheckSecrets(ctx, r.GetCron()); err != nil {
		return nil, err
	}
	c, err := s.crons.Create(ctx, r, actorOf(ctx))
	return &progressorv1.CreateCronResponse{Cron: c}, err
}

// UpdateCron replaces the definition of a cron.
func (s *cronService) UpdateCron(
	ctx context.Context, r *progressorv1.UpdateCronRequest,
) (*progressorv1.UpdateCronResponse, error) {
	if err := s.crons.CheckSecrets(ctx, r.GetCron()); err != nil {
		return nil, err
	}
	c, err := s.crons.Update(ctx, r, actorOf(ctx))
	return &progressorv1.UpdateCronResponse{Cron: c}, err
}

// GetCron returns a cron.
func (s *cronService) GetCron(
	ctx context.Context, r *progressorv1.GetCronRequest,
) (*progressorv1.GetCronResponse, error) {
	c, err := s.crons.Get(ctx, r.GetNamespace(), r.GetCronId())
	return &progressorv1.GetCronResponse{Cron: c}, err
}

// ListCrons returns a page of the crons of a namespace.
func (s *cronService) ListCrons(
	ctx context.Context, r *progressorv1.ListCronsRequest,
) (*progressorv1.ListCronsResponse, error) {
	list, next, err := s.crons.List(ctx, r)
	return &progressorv1.ListCronsResponse{Crons: list, NextPageToken: next}, err
}

// ListNextCrons returns the crons that fire next.
func (s *cronService) ListNextCrons(
	ctx context.Context, r *progressorv1.ListNextCronsRequest,
) (*progressorv1.ListNextCronsResponse, error) {
	list, err := s.crons.ListNext(ctx, r)
	return &progressorv1.ListNextCronsResponse{Crons: list}, err
}

// DeleteCron deletes a cron.
func (s *cronService) DeleteCron(
	ctx context.Context, r *progressorv1.DeleteCronRequest,
) (*progressorv1.DeleteCronResponse, error) {
	return &progressorv1.DeleteCronResponse{}, s.crons.Delete(ctx, r, actorOf(ctx))
}

// PauseCron pauses a cron until ResumeCron.
func (s *cronService) PauseCron(
	ctx context.Context, r *progressorv1.PauseCronRequest,
) (*progressorv1.PauseCronResponse, error) {
	c, err := s.crons.Pause(ctx, r, actorOf(ctx))
	return &progressorv1.PauseCronResponse{Cron: c}, err
}

// ResumeCron resumes a cron.
func (s *cronService) ResumeCron(
	ctx context.Context, r *progressorv1.ResumeCronRequest,
) (*progressorv1.ResumeCronResponse, error) {
	c, err := s.crons.Resume(ctx, r, actorOf(ctx))
	return &progressorv1.ResumeCronResponse{Cron: c}, err
}

// TriggerCron starts a run now.
func (s *cronService) TriggerCron(
	ctx context.Context, r *progressorv1.TriggerCronRequest,
) (*progressorv1.TriggerCronResponse, error) {
	f, err := s.crons.Trigger(ctx, r, actorOf(ctx))
	return &progressorv1.TriggerCronResponse{Fire: f}, err
}

// CancelFire removes a waiting fire from the queue, or cancels the run of a fire.
func (s *cronService) CancelFire(
	ctx context.Context, r *progressorv1.CancelFireRequest,
) (*progressorv1.CancelFireResponse, error) {
	f, err := s.crons.CancelFire(ctx, r, actorOf(ctx))
	return &progressorv1.CancelFireResponse{Fire: f}, err
}

// RerunFire starts another run for a fire that was skipped, or whose run did not succeed.
func (s *cronService) RerunFire(
	ctx context.Context, r *progressorv1.RerunFireRequest,
) (*progressorv1.RerunFireResponse, error) {
	f, err := s.crons.RerunFire(ctx, r, actorOf(ctx))
	return &progressorv1.RerunFireResponse{Fire: f}, err
}

// BackfillCron requests runs for past fire times.
func (s *cronService) BackfillCron(
	ctx context.Context, r *progressorv1.BackfillCronRequest,
) (*progressorv1.BackfillCronResponse, error) {
	n, err := s.crons.Backfill(ctx, r, actorOf(ctx))
	return &progressorv1.BackfillCronResponse{Fires: n}, err
}

// StopBackfills drops the remaining fire times of the backfills of a cron.
func (s *cronService) StopBackfills(
	ctx context.Context, r *progressorv1.StopBackfillsRequest,
) (*progressorv1.StopBackfillsResponse, error) {
	n, err := s.crons.StopBackfills(ctx, r, actorOf(ctx))
	return &progressorv1.StopBackfillsResponse{Backfills: n}, err
}

// PreviewCron returns fire times of a cron or a spec, and its description in words.
func (s *cronService) PreviewCron(
	ctx context.Context, r *progressorv1.PreviewCronRequest,
) (*progressorv1.PreviewCronResponse, error) {
	list, words, err := s.crons.Preview(ctx, r)
	if err != nil {
		return nil, err
	}
	resp := &progressorv1.PreviewCronResponse{Words: words}
	for _, fire := range list {
		resp.FireTimes = append(resp.FireTimes, timestamppb.New(fire))
	}
	return resp, nil
}

// ListFires returns a page of the ledger of a cron.
func (s *cronService) ListFires(
	ctx context.Context, r *progressorv1.ListFiresRequest,
) (*progressorv1.ListFiresResponse, error) {
	list, next, err := s.crons.ListFires(ctx, r)
	return &progressorv1.ListFiresResponse{Fires: list, NextPageToken: next}, err
}
