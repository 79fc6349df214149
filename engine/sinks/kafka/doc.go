// Package kafka delivers changes to topics of Apache Kafka.
//
// All changes of a process have the same key, so that they are in one partition of their topic. A
// delivery is sent in chunks that fit into one record batch of Kafka, so that each partition stores
// its part of a chunk entirely or not at all. A chunk is sent only after all partitions have stored
// the previous one. Therefore a partition never contains a change of a process without all earlier
// ones, even after failures. A failed delivery is repeated completely, and the partitions that had
// stored their part then contain it twice.
//
// The producer is idempotent: if a connection breaks after a broker has stored a chunk, the client
// sends it again and the broker recognizes it. A change is stored twice only if its delivery has
// failed and is repeated.
package kafka
