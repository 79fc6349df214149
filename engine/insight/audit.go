package insight

import (
	"context"

	"github.com/progressor-engine/progressor/engine"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
	"github.com/progressor-engine/progressor/wire"
)

// ListAudit lists audit entries that match a filter (see storage/search), newest first. If the
// namespace is "", it lists the entries of all namespaces that the client may see. A client that
// may see all namespaces also gets the entries of nodes. A page may have fewer entries than
// requested, or none, and still have a next page.
func (i *Insight) ListAudit(
	ctx context.Context, r *progressorv1.ListAuditRequest,
) ([]*progressorv1.AuditEntry, string, error) {
	_, leave, err := i.engine.Enter(ctx, r.GetNamespace())
	if err != nil {
		return nil, "", err
	}
	defer leave()
	page, err := search.ListAudit(ctx, i.store, search.AuditQuery{
		Namespace: r.GetNamespace(), Visible: engine.Visible(ctx), Filter: r.GetFilter(),
		PageSize: int(r.GetPageSize()), PageToken: r.GetPageToken(),
	})
	if err != nil {
		return nil, "", err
	}
	list := make([]*progressorv1.AuditEntry, len(page.Entries))
	for n := range page.Entries {
		if list[n], err = wire.AuditEntry(&page.Entries[n]); err != nil {
			return nil, "", err
		}
	}
	return list, page.NextPageToken, nil
}
