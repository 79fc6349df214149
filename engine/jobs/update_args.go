package jobs

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// argsPath is the path of update_mask that names UpdateJobRequest.args.
const argsPath = "args"

// checkUpdate validates an UpdateJob request.
func checkUpdate(r *progressorv1.UpdateJobRequest) error {
	paths := r.GetUpdateMask().GetPaths()
	if len(paths) == 0 {
		return &process.InvalidError{
			Field: "update_mask", Message: fmt.Sprintf("must name what changes: args, or some of %v", updatable),
		}
	}
	for _, path := range paths {
		if path != argsPath && !slices.Contains(updatable, protoreflect.Name(path)) {
			return &process.InvalidError{
				Field: "update_mask", Message: fmt.Sprintf("%q cannot change: args and some of %v can", path, updatable),
			}
		}
	}
	named := slices.Contains(paths, argsPath)
	switch {
	case r.GetArgs() != nil && !named:
		return &process.InvalidError{Field: "args", Message: "needs args in update_mask"}
	case r.GetOptions() == nil && (!named || len(paths) > 1):
		return &process.InvalidError{Field: "options", Message: "value is required"}
	}
	if name, ok := process.StepJob(r.GetJobId()); ok && named {
		return &process.InvalidError{
			Field: "args", Message: fmt.Sprintf("cannot change: this is the job of a step (%s), which sets them", name),
		}
	}
	return nil
}

// updatedArgs returns the args that an update stores for a job.
func updatedArgs(row *jobs.Row, options *progressorv1.JobOptions, r *progressorv1.UpdateJobRequest) (*[]byte, error) {
	if u := options.GetUnique(); u != nil && u.GetKey() == "" {
		return nil, &process.InvalidError{
			Field: "args", Message: "cannot change: the unique key of the job is made of them; set options.unique.key when you enqueue",
		}
	}
	args, err := valueJSON("args", r.GetArgs(), maxArgs(row.ProcessID))
	return &args, err
}
