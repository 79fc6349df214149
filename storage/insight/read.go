package insight

import (
	"context"

	"github.com/progressor-engine/progressor/storage"
)

// read runs one query. op is its name in errors.
func read[Param, Result any](
	ctx context.Context, s *storage.Store, op string,
	query func(context.Context, storage.DB, Param) (Result, error), param Param,
) (result Result, err error) {
	err = s.ReadOne(ctx, op, func(ctx context.Context, db storage.DB) (err error) {
		result, err = query(ctx, db, param)
		return err
	})
	return result, err
}
