// Package changes starts and ends the recording of changes, and deletes old ones. Triggers record:
// see migrations/00117_change_triggers.sql. They run in the transaction of every writer, and exist
// only while a namespace records.
package changes
