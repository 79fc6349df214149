package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/crons"
	"github.com/progressor-engine/progressor/engine/rpc"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// settings resolves flags that are not on the command line: from the environment first, then from
// the configuration file. Only flags tagged `setting` are resolved; the file applies to commands
// with --config.
type settings struct {
	getenv     func(string) (string, bool)
	environ    func() []string // nil: unknown names are not reported
	loaded     bool
	path       string // of the file; "" if there is none
	values     map[string]fileValue
	namespaces []fileNamespace
	crons      []fileCron
	templates  []fileTemplate
	sources    map[string]string // by flag name: "environment …", "file …"; absent: default or flag
}

// fileValue is a scalar in the file.
type fileValue struct {
	text string
	line int
}

func newSettings(getenv func(string) (string, bool)) *settings {
	return &settings{getenv: getenv, sources: map[string]string{}}
}

// isSetting reports whether the environment and the file can set a flag.
func isSetting(v *kong.Value) bool { return v.Tag != nil && v.Tag.Has("setting") }

// envName returns the name of the environment variable of a flag: db.max-conns is
// PROGRESSOR_DB_MAX_CONNS.
func envName(flag string) string {
	return "PROGRESSOR_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(flag))
}

// fileKey returns the key of a flag in the file: db.max-conns is db: {max_conns: …}.
func fileKey(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// load reads the configuration file, if the command has --config and it is set. kong calls it once
// for each part of the command line.
func (s *settings) load(ctx *kong.Context) error {
	if s.loaded {
		return nil
	}
	for _, flag := range ctx.Flags() {
		if flag.Name != "config" || flag.Target.Kind() != reflect.String {
			continue
		}
		s.loaded = true
		s.path, _ = ctx.FlagValue(flag).(string)
		if env, _ := s.getenv(envName(flag.Name)); s.path == "" {
			s.path = env
		}
	}
	if s.path == "" {
		return nil
	}
	text, err := os.ReadFile(s.path)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	file, err := parseConfigFile(text, settingKeys(ctx.Model))
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", s.path, err)
	}
	s.values, s.namespaces, s.crons, s.templates = file.values, file.namespaces, file.crons, file.templates
	return nil
}

// check returns the error that the engine would return for the namespaces, templates and crons of
// the file.
func (s *settings) check() error {
	node := engine.Config{Builtins: builtins(), Dial: remote.Dial}
	for _, ns := range s.namespaces {
		err := rpc.CheckRules(&progressorv1.PutNamespaceRequest{Namespace: ns.Namespace})
		if err == nil {
			err = node.CheckProcessor(ns.Namespace)
		}
		if err != nil {
			return fmt.Errorf("configuration file %s: %w", s.path, ns.wrong("namespace", err))
		}
	}
	for _, c := range s.crons {
		if err := c.check(); err != nil {
			return fmt.Errorf("configuration file %s: %w", s.path, err)
		}
	}
	for _, t := range s.templates {
		if err := t.check(); err != nil {
			return fmt.Errorf("configuration file %s: %w", s.path, err)
		}
	}
	return nil
}

// putNamespaces creates the namespaces of the file, or replaces their configuration.
func (s *settings) putNamespaces(ctx context.Context, eng *engine.Engine) error {
	for _, ns := range s.namespaces {
		if _, err := eng.PutNamespace(ctx, ns.Namespace); err != nil {
			return fmt.Errorf("namespace %s of %s: %w", ns.GetNamespace(), s.path, err)
		}
	}
	return nil
}

// putTimeout is how long the start waits for a cron of the file. If its namespace is paused, the
// cron is created later.
const putTimeout = 10 * time.Second

// putCrons creates the crons of the file, and updates those that differ.
func (s *settings) putCrons(ctx context.Context, all *crons.Crons, log *slog.Logger) error {
	for _, c := range s.crons {
		limited, cancel := context.WithTimeout(ctx, putTimeout)
		err := c.put(limited, all)
		late := limited.Err() != nil
		cancel()
		var held *process.WrongStatusError
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the program ends
		case late || errors.Is(err, process.ErrWaitTimeout) || errors.As(err, &held):
			log.Warn("cannot store a cron of the configuration file now", "namespace", c.GetNamespace(), "cron", c.GetCronId(), "cause", err)
		default:
			return fmt.Errorf("configuration file %s: %w", s.path, err)
		}
	}
	return nil
}

// settingKeys returns the keys that the file may set: the settings of serve.
func settingKeys(model *kong.Application) map[string]bool {
	keys := map[string]bool{}
	for _, node := range model.Children {
		if node.Name != "serve" {
			continue
		}
		for _, flag := range node.Flags {
			if isSetting(flag.Value) {
				keys[fileKey(flag.Name)] = true
			}
		}
	}
	return keys
}

// Validate implements kong.Resolver.
func (s *settings) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver. It returns the value of a flag that is not on the command line.
func (s *settings) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !isSetting(flag.Value) {
		return nil, nil
	}
	if v, set := s.getenv(envName(flag.Name)); set && v != "" {
		s.sources[flag.Name] = "environment " + envName(flag.Name)
		return v, nil
	}
	if v, ok := s.values[fileKey(flag.Name)]; ok {
		s.sources[flag.Name] = fmt.Sprintf("%s line %d", s.path, v.line)
		return v.text, nil
	}
	return nil, nil
}

// explain adds the source of a value to kong's error about it.
func (s *settings) explain(err error) error {
	text := err.Error()
	for name, source := range s.sources {
		if strings.HasPrefix(text, "--"+name+":") || strings.HasPrefix(text, "--"+name+" ") {
			return fmt.Errorf("%s (from %s)", text, source)
		}
	}
	return errors.New(text)
}
