// Package flows reads and writes the tables of flows: flow_types, flow_templates, flow_runs,
// flow_steps and flow_scopes.
package flows
