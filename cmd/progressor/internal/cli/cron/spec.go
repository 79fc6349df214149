package cron

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/engine/crons"
	"github.com/progressor-engine/progressor/engine/rpc"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// CheckCron returns the error that the engine would return for a cron. Errors are
// *process.InvalidError with the path of the field, such as cron.spec.timezone.
func CheckCron(c *progressorv1.Cron) error {
	err := rpc.CheckRules(&progressorv1.CreateCronRequest{Cron: c})
	var wrong *process.InvalidError
	// The proto rule for the URL is a pattern, whose error would not explain the problem.
	if err == nil || errors.As(err, &wrong) && wrong.Field == "cron.target.http.url" {
		return cmp.Or(crons.Check(c, time.Time{}), err)
	}
	return err
}

// scheduleOf parses a spec. created is the creation time of its cron, or zero if it is not stored.
func scheduleOf(s *progressorv1.CronSpec, created time.Time) (*cron.Schedule, error) {
	compiled, err := crons.Compile(&progressorv1.Cron{Spec: s}, created)
	return compiled.Schedule, err
}

// instant returns the time of a timestamp, or zero if it is missing.
func instant(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// cronFlags maps fields to flags, for the flags whose names cannot be derived from the field.
var cronFlags = map[string]string{
	"spec.exclude_expressions": "--exclude", "spec.daylight_saving.gap": "--daylight-gap",
	"spec.daylight_saving.overlap": "--daylight-overlap",
	"policy.overlap_action":        "--overlap", "policy.failure_action": "--failure",
	"policy.concurrency_policy": "--concurrency",
	"policy.misfire_policy":     "--misfire", "policy.retry_backoff.initial": "--retry-backoff",
	"policy.retry_backoff.max":    "--retry-backoff-max",
	"policy.retry_backoff.factor": "--retry-backoff-factor", "pause_note": "--reason",
	"cron_id": "ID", "namespace": "NS",
	"target":                          "one of --start-process, --start-run, --job, --notify and --http",
	"target.start_process.namespace":  "--target-namespace",
	"target.notify_process.namespace": "--target-namespace", "target.notify_process.process_id": "--notify",
	"target.http.url":    "--http",
	"target.http.method": "--method", "target.http.headers": "--header", "target.http.success_codes": "--success-code",
	"target.http.signing_secrets": "--signing-secret",
	"target.http.tls.ca_pem":      "--http-ca-file", "target.http.tls.certificate_secret": "--http-certificate",
	"target.start_process.args": "--args", "target.notify_process.args": "--args", "target.http.body": "--args",
	"target.start_process.metadata": "--process-metadata", "target.start_process.run_end": "--run-end",
	"target.start_run.type": "--start-run", "target.start_run.version": "--template-version",
	"target.start_run.payload_template": "--payload",
	"target.enqueue_job.name":           "--job", "target.enqueue_job.namespace": "--target-namespace",
	"target.enqueue_job.args": "--args",
	"target.start_run.scope":  "--scope", "target.start_run.scope_id": "--scope-id",
	"target.start_run.metadata": "--run-metadata",
}

// flagError replaces the field name in an error of CheckCron with the flag that sets it. If the
// cron was read from a file, the error has the path in that file.
func flagError(err error, file string) error {
	var wrong *process.InvalidError
	if !errors.As(err, &wrong) {
		return cli.UsageError(err)
	}
	path := strings.TrimPrefix(wrong.Field, "cron.")
	if file != "" {
		return cli.UsageError(fmt.Errorf("%s: %s", path, wrong.Message))
	}
	field, index, indexed := strings.Cut(path, "[")
	flag, known := cronFlags[field]
	switch {
	case field == "spec.expressions":
		if flag = "EXPRESSION"; indexed {
			n, _ := strconv.Atoi(strings.TrimSuffix(index, "]"))
			flag += " " + strconv.Itoa(n+1)
		}
	case known:
	case strings.HasPrefix(path, "target.start_run.payload_template"):
		flag = "--payload: " + strings.TrimPrefix(strings.TrimPrefix(path, "target.start_run.payload_template"), ".")
	case strings.HasPrefix(path, "target.enqueue_job.options."):
		flag = "--job-options: " + strings.TrimPrefix(path, "target.enqueue_job.options.")
	case strings.HasPrefix(field, "spec."), strings.HasPrefix(field, "policy."):
		_, name, _ := strings.Cut(field, ".")
		flag = "--" + strings.ReplaceAll(name, "_", "-")
	default:
		flag = path
	}
	return cli.UsageError(fmt.Errorf("%s: %s", flag, wrong.Message))
}

// flagOf replaces the field name in an error of the engine, like flagError. It returns other errors
// unchanged.
func flagOf(err error, file string) error {
	d := client.Detail(err)
	if d.GetReason() != progressorv1.ErrorDetail_REASON_INVALID || !strings.HasPrefix(d.GetField(), "cron.") {
		return err
	}
	text := err.Error()
	if connected, ok := errors.AsType[*connect.Error](err); ok {
		text = connected.Message()
	}
	return flagError(&process.InvalidError{Field: d.GetField(), Message: strings.TrimPrefix(text, d.GetField()+": ")},
		file)
}

// cronWords describes a spec in words, or returns its expressions if this program cannot parse
// them.
func cronWords(s *progressorv1.CronSpec) string {
	schedule, err := scheduleOf(s, time.Time{})
	if err != nil {
		return strings.Join(s.GetExpressions(), "; ")
	}
	return schedule.Words()
}
