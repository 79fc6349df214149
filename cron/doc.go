// Package cron says when a cron fires next. It is pure: no clock, no storage, nothing but the standard library.
package cron
