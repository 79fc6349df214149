package flows

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Template is one version of a template.
type Template = dbsqlc.GetTemplateRow

// Put stores the next version of a template, unless same reports that the newest version is equal.
// created reports whether it has stored a version. If enabled is not nil, Put also enables or
// disables the template. expected is the newest version that the caller knows. If it is negative,
// any version is accepted. Put returns process.ErrStaleVersion if the newest version is a different
// one.
func Put(
	ctx context.Context, s *storage.Store, namespace, templateType string, definition []byte, enabled *bool,
	expected int32, by []process.Actor, same func(Template) (bool, error),
) (created bool, err error) {
	err = s.RunLocked(ctx, "put template", nil, func(ctx context.Context, db storage.DB) error {
		q := dbsqlc.New()
		created = false
		err := q.LockType(ctx, db, dbsqlc.LockTypeParams{Namespace: namespace, TemplateType: templateType})
		if err != nil {
			return err
		}
		newest, err := q.NewestVersion(ctx, db, dbsqlc.NewestVersionParams{
			Namespace: namespace, TemplateType: templateType,
		})
		if err != nil {
			return err
		}
		if expected >= 0 && expected != newest {
			return process.ErrStaleVersion
		}
		on := true
		if newest > 0 {
			t, err := q.GetTemplate(ctx, db, dbsqlc.GetTemplateParams{Namespace: namespace, TemplateType: templateType})
			if err != nil {
				return err
			}
			on = t.Enabled
			if equal, err := same(t); err != nil || equal && (enabled == nil || *enabled == on) {
				return err
			} else if equal {
				if _, err := q.EnableTemplate(ctx, db,
					dbsqlc.EnableTemplateParams{Namespace: namespace, TemplateType: templateType,
						Enabled: *enabled}); err != nil {
					return err
				}
				return storage.AuditCommand(ctx, db, "PutTemplate", namespace, templateType, by)
			}
		}
		if enabled != nil {
			on = *enabled
		}
		created = true
		err = q.InsertTemplate(ctx, db,
			dbsqlc.InsertTemplateParams{Namespace: namespace, TemplateType: templateType, Version: newest + 1,
				Enabled: on, Definition: definition})
		if err != nil {
			return err
		}
		// The audit contains only version numbers, because flow_templates keeps all versions.
		change := storage.ConfigChange{After: storage.ConfigJSON(map[string]int32{"version": newest + 1})}
		if newest > 0 {
			change.Before = storage.ConfigJSON(map[string]int32{"version": newest})
		}
		return change.Audit(ctx, db, "PutTemplate", namespace, templateType, by)
	})
	return created, err
}

// GetTemplate returns a version of a template; 0 means the newest. It returns
// process.ErrTemplateNotFound if there is none.
func GetTemplate(
	ctx context.Context, s *storage.Store, namespace, templateType string, version int32,
) (t Template, err error) {
	t, err = storage.Query(ctx, s.ReadOne, "get template", dbsqlc.New().GetTemplate,
		dbsqlc.GetTemplateParams{Namespace: namespace, TemplateType: templateType, Version: version})
	return t, noTemplate(err)
}

// Head is a version of a template without its definition.
type Head = dbsqlc.HeadTemplateRow

// HeadTemplate is like GetTemplate, but does not read the definition.
func HeadTemplate(
	ctx context.Context, s *storage.Store, namespace, templateType string, version int32,
) (h Head, err error) {
	h, err = storage.Query(ctx, s.ReadOne, "get template", dbsqlc.New().HeadTemplate,
		dbsqlc.HeadTemplateParams{Namespace: namespace, TemplateType: templateType, Version: version})
	return h, noTemplate(err)
}

func noTemplate(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return process.ErrTemplateNotFound
	}
	return err
}

// IsRequest reports whether a start of a run with an idempotency key is stored.
func IsRequest(ctx context.Context, s *storage.Store, key process.Key, idempotencyKey string) (bool, error) {
	return storage.Query(ctx, s.ReadOne, "look for the request", dbsqlc.New().IsRequest,
		process.RequestID(key.Namespace, key.ProcessID, idempotencyKey))
}

// MaxVersions limits the number of versions that Versions returns.
const MaxVersions = 1000

// Versions lists the newest versions of a template, in ascending order.
func Versions(ctx context.Context, s *storage.Store, namespace, templateType string) ([]int32, error) {
	return storage.Query(ctx, s.ReadOne, "list versions", dbsqlc.New().ListVersions,
		dbsqlc.ListVersionsParams{Namespace: namespace, TemplateType: templateType, Lim: MaxVersions})
}

// Listed is the newest version of a template.
type Listed = dbsqlc.ListTemplatesRow

// ListTemplates lists the newest version of each template whose type is greater than after. It
// returns at most limit templates, with about storage.ListBytes in total. cut reports whether the
// size ended the list, so that there may be more.
func ListTemplates(
	ctx context.Context, s *storage.Store, namespace, after string, limit int,
) (rows []Listed, cut bool, err error) {
	rows, err = storage.Query(ctx, s.ReadOne, "list templates", dbsqlc.New().ListTemplates, dbsqlc.ListTemplatesParams{
		Namespace: namespace, After: after, Lim: int32(limit), MaxBytes: storage.ListBytes,
	})
	bytes := 0
	for n := range rows {
		bytes += len(rows[n].Definition)
	}
	return rows, bytes > storage.ListBytes, err
}

// Enable enables or disables new runs of a template.
func Enable(
	ctx context.Context, s *storage.Store, namespace, templateType string, enabled bool, by []process.Actor,
) error {
	method := "DisableTemplate"
	if enabled {
		method = "EnableTemplate"
	}
	return s.RunLocked(ctx, "enable template", nil, func(ctx context.Context, db storage.DB) error {
		n, err := dbsqlc.New().EnableTemplate(ctx, db,
			dbsqlc.EnableTemplateParams{Namespace: namespace, TemplateType: templateType, Enabled: enabled})
		if err == nil && n == 0 {
			err = process.ErrTemplateNotFound
		}
		if err != nil {
			return err
		}
		return storage.AuditCommand(ctx, db, method, namespace, templateType, by)
	})
}

// Delete deletes a template. If the template has an open run, Delete returns the ID of the run and
// deletes nothing.
func Delete(
	ctx context.Context, s *storage.Store, namespace, templateType string, by []process.Actor,
) (openRunID string, err error) {
	err = s.RunLocked(ctx, "delete template", nil, func(ctx context.Context, db storage.DB) error {
		q := dbsqlc.New()
		newest, err := q.NewestVersion(ctx, db, dbsqlc.NewestVersionParams{
			Namespace: namespace, TemplateType: templateType,
		})
		if err != nil {
			return err
		}
		row, err := q.DeleteTemplate(ctx, db,
			dbsqlc.DeleteTemplateParams{Namespace: namespace, TemplateType: templateType})
		if err == nil && !row.Found {
			err = process.ErrTemplateNotFound
		}
		if openRunID = row.OpenRunID; err != nil || openRunID != "" {
			return err
		}
		change := storage.ConfigChange{Before: storage.ConfigJSON(map[string]int32{"version": newest})}
		return change.Audit(ctx, db, "DeleteTemplate", namespace, templateType, by)
	})
	return openRunID, err
}
