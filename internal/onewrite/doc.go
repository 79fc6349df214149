// Package onewrite sends small HTTP/1.1 requests with a single write. net/http writes the header
// separately if reading the body might block, which it assumes for all readers except a few
// in-memory ones of the standard library. Connect uses its own reader, so without this package each
// call is sent as two packets and wakes the peer twice.
package onewrite
