package cron

import (
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/cron"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type cronPreviewCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace of a stored cron."`
	ID string `arg:"" optional:"" name:"id" complete:"cron" help:"Id of the cron."`

	cli.ClientFlags
	Expression []string `short:"e" sep:"none" placeholder:"EXPRESSION" help:"Expression to preview instead of a stored cron; can be repeated."`
	specFlags
	From  string `field:"from_time" placeholder:"TIME|DURATION" help:"Start of the preview. Default: now."`
	To    string `field:"to_time" placeholder:"TIME|DURATION" help:"End of the preview. Default: a month later."`
	Limit int32  `default:"100" placeholder:"N" help:"Number of fire times with -o json, 1 to 1000. Default: ${default}."`
}

func (cronPreviewCmd) Help() string {
	return `Preview describes in words when a cron fires, and draws a calendar of the next month. Days with
fires are in brackets; their times are listed below, in the time zone of the cron. Expressions need
no engine.

    progressor cron preview demo nightly
    progressor cron preview -e '0 9 LW * *' --timezone Europe/Berlin
    progressor cron preview -e '30 2 * * *' --timezone America/New_York --from 2027-03-01T00:00:00Z
    progressor cron preview -e '@every 90m' -e '0 12 * * SUN' --exclude '* * 24-26 12 *' -o json --limit 10`
}

func (c *cronPreviewCmd) Run(a *cli.App) error {
	from, to, err := c.bounds()
	if err != nil {
		return err
	}
	switch {
	case c.ID == "" && (c.NS != "" || len(c.Expression) == 0):
		return cli.UsageError(errors.New("set either NS and ID of a cron, or --expression"))
	case c.ID != "" && (len(c.Expression) > 0 || c.set()):
		return cli.UsageError(errors.New("set either NS and ID of a cron, or --expression and its flags"))
	case c.Limit < 1 || c.Limit > 1000:
		return cli.UsageError(errors.New("--limit: must be 1 to 1000"))
	}
	schedule, stored, err := c.schedule(a)
	if err != nil {
		return err
	}
	from, to = defaultBounds(from, to, schedule.Location())
	if !from.Before(to) {
		return cli.UsageError(fmt.Errorf("--to: must be after %s", from.UTC().Format(time.RFC3339)))
	}
	if c.JSON() {
		return c.printJSON(a, schedule, from, to)
	}
	if stored != nil && stored.GetPaused() {
		fmt.Fprintf(a.Stdout, "paused: %s\n", output.OneLine(stored.GetPauseNote()))
	}
	return drawPreview(a.Stdout, schedule, from, to)
}

func (c *cronPreviewCmd) bounds() (from, to time.Time, err error) {
	start, err := cli.TimeFrom("--from", c.From)
	if err != nil {
		return from, to, err
	}
	end, err := cli.TimeFrom("--to", c.To)
	return instant(start), instant(end), err
}

// defaultBounds returns the bounds with their defaults: from is now, and to is the same day of the
// next month.
func defaultBounds(from, to time.Time, zone *time.Location) (time.Time, time.Time) {
	if from.IsZero() {
		from = time.Now().Truncate(time.Second)
	}
	if to.IsZero() {
		year, month, day := from.In(zone).Date()
		to = time.Date(year, month+1, day, 0, 0, 0, 0, zone)
	}
	return from, to
}

// set reports whether any flag of the spec was set.
func (c *cronPreviewCmd) set() bool {
	spec := &progressorv1.CronSpec{}
	return c.apply(spec) != nil || !proto.Equal(spec, &progressorv1.CronSpec{})
}

// schedule returns the schedule of the flags or of the stored cron.
func (c *cronPreviewCmd) schedule(a *cli.App) (*cron.Schedule, *progressorv1.Cron, error) {
	if c.ID == "" {
		spec := &progressorv1.CronSpec{Expressions: c.Expression}
		if err := c.apply(spec); err != nil {
			return nil, nil, err
		}
		schedule, err := scheduleOf(spec, time.Time{})
		if err != nil {
			return nil, nil, flagError(err, "")
		}
		return schedule, nil, nil
	}
	ctx, cancel := a.Request()
	defer cancel()
	resp, err := c.Client().Cron.GetCron(ctx, &progressorv1.GetCronRequest{Namespace: c.NS, CronId: c.ID})
	if err != nil {
		return nil, nil, err
	}
	schedule, err := scheduleOf(resp.GetCron().GetSpec(), instant(resp.GetCron().GetCreatedTime()))
	if err != nil {
		return nil, nil, fmt.Errorf("the stored cron is from an engine newer than this program: %w", err)
	}
	return schedule, resp.GetCron(), nil
}

// printJSON prints the response of the API. For a stored cron, the engine computes the response.
func (c *cronPreviewCmd) printJSON(a *cli.App, schedule *cron.Schedule, from, to time.Time) error {
	if c.ID == "" {
		resp := &progressorv1.PreviewCronResponse{Words: schedule.Words()}
		for fire := range schedule.Between(from, to) {
			if resp.FireTimes = append(resp.FireTimes, timestamppb.New(fire)); len(resp.FireTimes) == int(c.Limit) {
				break
			}
		}
		return output.PrintMessage(a.Stdout, resp)
	}
	ctx, cancel := a.Request()
	defer cancel()
	resp, err := c.Client().Cron.PreviewCron(ctx, &progressorv1.PreviewCronRequest{
		Of:       &progressorv1.PreviewCronRequest_Cron{Cron: &progressorv1.CronRef{Namespace: c.NS, CronId: c.ID}},
		FromTime: timestamppb.New(from), ToTime: timestamppb.New(to), Limit: c.Limit,
	})
	if err != nil {
		return err
	}
	return output.PrintMessage(a.Stdout, resp)
}

const (
	// maxDrawn is the maximum number of fire times that a preview computes. Computing them takes
	// about a second. A month with a fire time in each second has fewer.
	maxDrawn = 3_000_000
	// maxTimes is the maximum number of times that are printed for a day.
	maxTimes = 8
)

// firingDay is a day of a preview with its fire times.
type firingDay struct {
	date  time.Time // noon in UTC, independent of the time zone
	fires int
	times []string // the first fire times
	last  string
	hash  uint64 // hash of all fire times of the day
}

var timesSeed = maphash.MakeSeed()

// firingDays returns the days with fires, in the time zone of the schedule.
func firingDays(schedule *cron.Schedule, from, to time.Time) ([]firingDay, error) {
	var days []firingDay
	computed := 0
	for fire := range schedule.Between(from, to) {
		if computed++; computed > maxDrawn {
			return nil, cli.UsageError(
				fmt.Errorf("--to: must be earlier: there are more than %s fire times before it",
					output.Thousands(maxDrawn)))
		}
		local := fire.In(schedule.Location())
		year, month, day := local.Date()
		date := time.Date(year, month, day, 12, 0, 0, 0, time.UTC)
		if len(days) == 0 || !days[len(days)-1].date.Equal(date) {
			days = append(days, firingDay{date: date})
		}
		days[len(days)-1].add(local)
	}
	return days, nil
}

func (d *firingDay) add(local time.Time) {
	d.fires++
	h, m, s := local.Clock()
	d.hash = maphash.Comparable(timesSeed, [2]uint64{d.hash, uint64(h*3600 + m*60 + s)})
	if s == 0 {
		d.last = local.Format("15:04")
	} else {
		d.last = local.Format("15:04:05")
	}
	if len(d.times) < maxTimes {
		d.times = append(d.times, d.last)
	}
}

// same reports whether two days have the same fire times.
func (d *firingDay) same(other firingDay) bool { return d.fires == other.fires && d.hash == other.hash }
