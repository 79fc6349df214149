package main

const (
	doctorSinks = "cmd/progressor/internal/cli/server/doctorsinks.go"
	doctorAudit = "cmd/progressor/internal/cli/server/doctoraudit.go"
)

// doctorMutants are the mutants of progressor doctor.
var doctorMutants = []mutant{
	{
		name: "doctor-disabled-sink", breaks: "doctor warns about a sink that the engine has given up",
		file: doctorSinks, old: `case "BROKEN", "DISABLED":`, planted: `case "BROKEN":`,
		packages: "./cmd/progressor/internal/cli/server", run: "TestDoctorFindsSinks",
	},
	{
		name: "doctor-failing-sink", breaks: "doctor warns about a sink whose deliveries fail",
		file: doctorSinks, old: `case "FAILING":`, planted: `case "FAILED":`,
		packages: "./cmd/progressor/internal/cli/server", run: "TestDoctorFindsSinks",
	},
	{
		name: "doctor-lost-changes", breaks: "doctor warns about changes that were deleted before their delivery",
		file: doctorSinks, old: "d.seq > coalesce(item.seq, 0))", planted: "d.seq > coalesce(item.seq, 0) + 1)",
		packages: "./cmd/progressor/internal/cli/server", run: "TestDoctorFindsSinks",
	},
	{
		name: "doctor-resumed-sink", breaks: "doctor counts the lag of a sink from its last resume",
		file: doctorSinks, old: "if s.Lag > nearMaxLag*s.MaxLag {", planted: "if s.Oldest > nearMaxLag*s.MaxLag {",
		packages: "./cmd/progressor/internal/cli/server", run: "TestDoctorFindsSinks",
	},
	{
		name: "doctor-late-sink", breaks: "doctor warns about a sink that soon becomes BROKEN",
		file: doctorSinks, old: "nearMaxLag = 0.8", planted: "nearMaxLag = 1",
		packages: "./cmd/progressor/internal/cli/server", run: "TestDoctorFindsSinks",
	},
	{
		name: "doctor-abandoned-sink", breaks: "doctor warns about a sink whose node is gone if no other node takes it",
		file: doctorSinks, old: "case s.NodeID != 0 && s.LeaseEnded > lateLease.Seconds():",
		planted:  "case s.NodeID != 0 && s.LeaseEnded > 60*lateLease.Seconds():",
		packages: "./cmd/progressor/internal/cli/server", run: "TestDoctorFindsSinks",
	},
	{
		name: "doctor-waiting-sink", breaks: "doctor warns about a sink with changes that no node delivers",
		file: doctorSinks, old: "case s.NodeID == 0 && s.Oldest > lateLease.Seconds():",
		planted:  "case s.NodeID == 0 && s.Oldest > s.MaxLag:",
		packages: "./cmd/progressor/internal/cli/server", run: "TestDoctorFindsSinks",
	},
	{
		name: "doctor-paused-sink", breaks: "doctor does not warn about a paused sink that no node delivers",
		file: doctorSinks, old: `	case s.State == "PAUSED":`, planted: `	case s.State == "PAUSE":`,
		packages: "./cmd/progressor/internal/cli/server", run: "TestDoctorFindsSinks",
	},
	{
		name: "doctor-old-dead-letters", breaks: "doctor warns about dead letters for a day",
		file: doctorSinks, old: `d."time" > statement_timestamp() - make_interval(secs => $1))`,
		planted:  "make_interval(secs => $1) IS NOT NULL)",
		packages: "./cmd/progressor/internal/cli/server", run: "TestDoctorFindsSinks",
	},
	{
		name: "doctor-audit-changed", breaks: "doctor warns about an engine that can change the audit",
		file: doctorAudit, old: "OR has_any_column_privilege(r.oid, audit.oid, 'UPDATE')", planted: "",
		packages: "./cmd/progressor/internal/cli/server", run: "TestDoctorFindsRolesThatChangeTheAudit",
	},
	{
		name: "doctor-audit-unsealed", breaks: "doctor warns about an engine that cannot add to the hash chain",
		file: doctorAudit, old: "AND NOT (has_function_privilege", planted: "AND (has_function_privilege",
		packages: "./cmd/progressor/internal/cli/server", run: "TestDoctorFindsRolesThatChangeTheAudit",
	},
	{
		name: "doctor-ignores-set-role", breaks: "doctor warns about roles that can SET ROLE to pg_write_all_data",
		file: doctorAudit, old: "pg_has_role(r.oid, w.oid, 'MEMBER')", planted: "pg_has_role(r.oid, w.oid, 'USAGE')",
		packages: "./cmd/progressor/internal/cli/server", run: "RolesThatChange",
	},
}
