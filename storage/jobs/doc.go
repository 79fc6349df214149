// Package jobs reads and writes the tables of jobs, such as jobs, job_keys and constraints.
package jobs
