package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script runs a script of the repository and returns its output and whether it succeeded.
func script(t *testing.T, env []string, path string, args ...string) (string, bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// release.sh accepts only versions like v1.2.3.
func TestReleaseNeedsVersion(t *testing.T) {
	for _, version := range []string{"", "1.2.3", "v1.2", "v1.2.3-5-gabcdef0", "v1.2.3-dirty", "v1.2.3 ", "latest"} {
		out, ok := script(t, nil, "../tools/release.sh", version)
		if ok || !strings.Contains(out, "want one like v1.2.3") {
			t.Errorf("version %q: %v, %s", version, ok, out)
		}
	}
}

// If govulncheck.sh cannot reach the database of vulnerabilities, it passes with a notice. With the
// argument "required", as before a release, it fails.
func TestVulnerabilitiesFailClosed(t *testing.T) {
	bin := t.TempDir()
	for _, c := range []struct {
		output            string
		passes, available bool
	}{
		{"govulncheck: fetching vulnerabilities: Get \"https://vuln.example\": dial tcp: no such host", true, false},
		{"govulncheck: fetching vulnerabilities: dial tcp: i/o timeout\nVulnerability #1: GO-2026-1", false, true},
		{"Vulnerability #1: GO-2026-1", false, true},
		{"govulncheck: loading packages: no such host", false, true},
	} {
		program := "#!/bin/sh\ncat <<'EOF'\n" + c.output + "\nEOF\nexit 3\n"
		if err := os.WriteFile(filepath.Join(bin, "go"), []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
		env := []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
		if out, ok := script(t, env, "../tools/govulncheck.sh"); ok != c.passes {
			t.Errorf("%q: passes is %v: %s", c.output, ok, out)
		}
		out, ok := script(t, env, "../tools/govulncheck.sh", "required")
		if ok || strings.Contains(out, "NOT CHECKED") == c.available {
			t.Errorf("%q, required: passes is %v: %s", c.output, ok, out)
		}
	}
}

// go install and the tools that build releases reject a module with replace or exclude directives.
func TestModuleCanBeInstalled(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if first, _, _ := strings.Cut(strings.TrimSpace(line), " "); first == "replace" || first == "exclude" {
			t.Errorf("go.mod: %s", line)
		}
	}
}
