// Package jobs is the job queue. A job is a process of kind job. Its INIT task is executed by the
// processor of its namespace, or leased to a worker that polls, and the end of that task is the end
// of the job.
//
// The package adds what jobs have beyond processes: options, retries, results, cancels, unique
// keys, constraints, and jobs that several workers run. Leases and polls are in package pull,
// because other processes also have them.
//
// Start with jobs.go (requests) and decide.go (results). admit.go and key_queues.go assign keys of
// constraints.
package jobs
