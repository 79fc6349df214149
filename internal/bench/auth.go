package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	sdk "github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// The states that the workload auth measures in turn.
const (
	withoutAuth = "without authentication"
	withKey     = "with an API key"
)

const (
	// authSlices is the number of slices into which the time of each state is divided. The rate of
	// a shared machine changes by more than authentication costs, but less from one slice to the
	// next.
	authSlices = 10
	// authWarmup is the part of a slice that passes before it is measured.
	authWarmup = 0.1
)

// auth measures the same calls as rpc without and with authentication by an API key. One engine
// serves both, at different ports, so that nothing else differs.
func (r *runner) auth(ctx context.Context, v variant) error {
	var rows []*Row
	for _, v.state = range []string{withoutAuth, withKey} {
		rows = append(rows, v.row(subjectEngine))
	}
	err := r.inScratch(ctx, func(d *scratch) error {
		g, err := r.openRig(ctx, d, order{Protect: true}, func(*progressorv1.Namespace) {})
		if err != nil {
			return err
		}
		calls, err := r.alternate(ctx, d, g, v, rows)
		if err := errors.Join(err, g.close()); err != nil {
			return err
		}
		return r.verify(ctx, d, rows[1],
			acknowledged{process.TaskInit: int64(r.command.Processes), process.TaskCall: calls})
	})
	r.report.Rows = append(r.report.Rows, rows...)
	return err
}

// alternate measures slices of both states in turn.
func (r *runner) alternate(ctx context.Context, d *scratch, g *rig, v variant, rows []*Row) (calls int64, err error) {
	token, err := d.createKey(ctx, namespaceName, "client")
	if err != nil {
		return 0, err
	}
	apis := []*sdk.Client{g.api, sdk.New("http://"+g.engine.protected, sdk.WithHTTPClient(newHTTPClient()),
		sdk.WithoutKeys(), sdk.WithToken(token))}
	if err := r.fillRig(ctx, d, g, v); err != nil {
		return 0, err
	}
	var total [2]*window
	var rates [2][]float64
	warmup := r.command.Warmup
	for slice := range 2 * authSlices {
		state := (slice + 1) / 2 % 2 // 0 1 1 0 0 1 1 0: a steady change of the machine affects both alike
		l := load{clients: v.clients, warmup: warmup, duration: r.command.Duration / authSlices,
			do: g.caller(r, apis[state], v)}
		m := &meter{conn: r.server.admin, postmaster: r.server.postmaster, engineCPU: g.engine.cpu}
		w, err := l.run(ctx, m)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", rows[state].Workload, err)
		}
		calls += w.acknowledged
		rates[state] = append(rates[state], w.rate())
		if total[state] == nil {
			total[state] = w
		} else {
			total[state].merge(w)
		}
		warmup = time.Duration(authWarmup * float64(l.duration))
	}
	for state, row := range rows {
		row.rate(total[state])
	}
	rows[1].compare(rows[0], withoutAuth)
	rows[1].figure("ratio, standard error", standardError(rates[1], rates[0]), "")
	return calls, nil
}

// standardError returns the standard error of the mean ratio of the rates a to the rates b. It
// skips rates of 0, which short slices have on a busy machine.
func standardError(a, b []float64) float64 {
	n, sum, squares := 0.0, 0.0, 0.0
	for i := range a {
		if b[i] > 0 {
			ratio := a[i] / b[i]
			sum += ratio
			squares += ratio * ratio
			n++
		}
	}
	if n < 2 {
		return 0
	}
	mean := sum / n
	return math.Sqrt(max(0, squares/n-mean*mean) / (n - 1))
}

// merge adds the measurements of another window. The size of a group commit becomes unknown.
func (w *window) merge(other *window) {
	w.latencies.merge(&other.latencies)
	w.elapsed += other.elapsed
	w.acknowledged += other.acknowledged
	w.refused += other.refused
	w.spent = spent{
		walBytes:     sumKnown(w.spent.walBytes, other.spent.walBytes),
		postgresTime: sumKnown(w.spent.postgresTime, other.spent.postgresTime),
		engineTime:   sumKnown(w.spent.engineTime, other.spent.engineTime),
	}
}

// sumKnown returns the sum of two values, or nil if one of them is unknown.
func sumKnown[T float64 | time.Duration](a, b *T) *T {
	if a == nil || b == nil {
		return nil
	}
	return new(*a + *b)
}

// createKey creates an API key with roles in some namespaces, and returns its token.
func (d *scratch) createKey(ctx context.Context, namespaces string, roles ...string) (token string, err error) {
	conn, err := d.connect(ctx, engineSchema)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	id, token := auth.NewToken()
	hash := auth.Hash(token)
	key := storage.NewKey{KeyID: id, Name: "bench-" + id, Hash: hash[:]}
	for _, role := range roles {
		key.Grants = append(key.Grants, storage.GrantKey{
			Principal: auth.KeyPrincipal(id), Role: role, Namespaces: namespaces,
		})
	}
	return token, storage.AccessOf(conn).CreateKey(ctx, key, process.Actor{})
}
