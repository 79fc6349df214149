package main

import "testing"

const cronsOfFile = `
db: {dsn: 'postgres://db/x'}
crons:
  - namespace: demo
    cron_id: nightly
    spec: {expressions: ['0 3 * * *'], timezone: Europe/Berlin}
    policy: {overlap_action: skip, timeout: 10m}
    target: {start_process: {args: {order: A-7}}}
  - namespace: demo
    cron-id: ping
    spec: {expressions: ['@every 90s']}
    target: {http: {url: 'http://127.0.0.1:9000/', headers: {authorization: hunter2}}}
`

// Errors in crons of the configuration file name the line and the field. Each key replaces the text
// before the | in the file by the text after it.
func TestCronsOfTheConfiguration(t *testing.T) {
	checkConfiguration(t, cronsOfFile, "2 crons, 0 templates, 0 sinks", map[string]string{
		"Europe/Berlin|Mars": "line 6: crons[0].spec.timezone: ",
		"overlap_action: " +
			"skip|overlap_action: often": `line 7: crons[0].policy.overlap_action: unknown value "often"; use one of`,
		"@every 90s|0 25 * * *": "line 11: crons[1].spec.expressions[0]: ", "http://127|ftp://127": "line 12: crons[1].target.http.url: ",
		"cron_id: nightly|cron_id: ping":           "line 9: crons[1]: cron ping of namespace demo is defined twice",
		"cron_id: nightly|paused: false":           "crons[0].cron_id is missing",
		"- namespace: demo\n    cron_id|- cron_id": "crons[0].namespace is missing",
		"{start_process: {args: {order: A-7}}}|{}": "crons[0].target",
		"timeout: 10m|timeout: 10":                 "line 7: crons[0].policy.timeout: must be a duration with a unit",
		"timeout: 10m|time_out: 10m":               "line 7: crons[0].policy.time_out: unknown field",
	})
}
