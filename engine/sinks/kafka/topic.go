package kafka

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/progressor-engine/progressor/engine/sinks/format"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// maxTopic is the limit of Kafka for the name of a topic.
const maxTopic = 249

var (
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
	topicName   = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)
)

// checkTopic checks the name of a topic with placeholders.
func checkTopic(topic string) error {
	if topic == "" {
		return errors.New("must not be empty: set a name such as progressor.{namespace}")
	}
	for _, p := range placeholder.FindAllString(topic, -1) {
		if p != "{namespace}" && p != "{kind}" {
			return fmt.Errorf("must have no placeholders except {namespace} and {kind} (got %s)", p)
		}
	}
	switch name := placeholder.ReplaceAllString(topic, "x"); {
	case !topicName.MatchString(name):
		return fmt.Errorf("must contain only letters, digits, '.', '_', '-' and placeholders (got %q)", topic)
	case topic == "." || topic == "..":
		return fmt.Errorf("must not be . or .. (got %q)", topic)
	case len(topic) > maxTopic:
		return fmt.Errorf("must have at most %d characters (got %d)", maxTopic, len(topic))
	}
	return nil
}

// topicOf returns the topic of a change.
func topicOf(topic string, c *progressorv1.Change) string {
	return strings.NewReplacer(
		"{namespace}", strings.ReplaceAll(c.GetNamespace(), "/", "."), "{kind}", format.Kind(c),
	).Replace(topic)
}
