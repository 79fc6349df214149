package server

import (
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kfake"
)

// devKafkaFlags configure the Kafka broker of dev.
type devKafkaFlags struct {
	Run    bool   `name:"kafka" setting:"" help:"Also run a Kafka broker to try out sinks. It keeps its messages in memory and creates missing topics."`
	Listen string `name:"kafka-listen" default:"127.0.0.1:9092" placeholder:"ADDR" setting:"" help:"Address of the Kafka broker. Default: ${default}."`
}

// check returns an error if the flags are wrong. The broker has no authentication, so it listens
// beyond loopback only if the engine requires none either.
func (f *devKafkaFlags) check(mode string) error {
	if !f.Run {
		return nil
	}
	if err := checkListen("--kafka-listen", f.Listen); err != nil {
		return err
	}
	if mode != authNone && !isLoopback(f.Listen) {
		return fmt.Errorf("--kafka-listen: must be a loopback address, such as 127.0.0.1:9092, because the broker "+
			"has no authentication (got %s); --auth.mode none allows others", f.Listen)
	}
	return nil
}

// start starts the broker. It returns the address of the broker and a function that stops it.
// Without --kafka, the address is empty.
func (f *devKafkaFlags) start() (address string, stop func(), err error) {
	if !f.Run {
		return "", func() {}, nil
	}
	listener, err := listen("--kafka-listen", f.Listen)
	if err != nil {
		return "", nil, err
	}
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return listener, nil }),
	)
	if err != nil {
		return "", nil, fmt.Errorf("--kafka: %w", err)
	}
	return listener.Addr().String(), cluster.Close, nil
}
