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
			Field: "update_mask", Message: "must name at least one of " + updatablePaths(),
		}
	}
	for _, path := range paths {
		if path != argsPath && !slices.Contains(updatable, protoreflect.Name(path)) {
			return &process.InvalidError{
				Field:   "update_mask",
				Message: fmt.Sprintf("%q cannot change: valid fields are %s", path, updatablePaths()),
			}
		}
	}
	named := slices.Contains(paths, argsPath)
	switch {
	case r.GetArgs() != nil && !named:
		return &process.InvalidError{Field: "args", Message: "must not be set without args in update_mask"}
	case r.GetOptions() == nil && (!named || len(paths) > 1):
		return &process.InvalidError{Field: "options", Message: "is required"}
	}
	if name, ok := process.StepJob(r.GetJobId()); ok && named {
		return &process.InvalidError{
			Field: "args", Message: fmt.Sprintf("cannot change: the step %s sets the args of this job", name),
		}
	}
	return nil
}

// updatablePaths returns the valid paths of an update mask, for messages.
func updatablePaths() string {
	paths := argsPath
	for _, name := range updatable {
		paths += ", " + string(name)
	}
	return paths
}

// updatedArgs returns the args that an update stores for a job.
func updatedArgs(row *jobs.Row, options *progressorv1.JobOptions, r *progressorv1.UpdateJobRequest) (*[]byte, error) {
	if u := options.GetUnique(); u != nil && u.GetKey() == "" {
		return nil, &process.InvalidError{
			Field: "args",
			Message: "cannot change: the job's unique key is computed from its args; to allow changes, set " +
				"options.unique.key in Enqueue",
		}
	}
	args, err := valueJSON("args", r.GetArgs(), maxArgs(row.ProcessID))
	return &args, err
}
