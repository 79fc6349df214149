// Package changes starts and ends the recording of changes, reads them for streams and sinks, and
// deletes old ones. It also has the statements of sinks: their settings, leases and cursors.
//
// Triggers record changes in the table changes: see migrations/00117_change_triggers.sql. The
// triggers run in the transaction of every writer, and exist only while a namespace records
// changes.
//
// Start with recording.go, read.go (Read) and pacer.go (what wakes a reader).
// storage/change_readers.go wakes the readers of a node when the node commits changes.
package changes
