// Package onewrite sends small HTTP/1.1 requests with a single write. net/http writes the header
// separately if reading the body might block. It assumes this of all readers except a few in-memory
// readers of the standard library. Connect uses its own reader. Without this package, each call is
// therefore sent as two packets and wakes the peer twice.
package onewrite
