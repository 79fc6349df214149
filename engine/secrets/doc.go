// Package secrets encrypts the values of headers in the database, and hides them in responses.
//
// A header that may be secret is encrypted (sealed) before it is stored anywhere: in the
// configuration of a namespace, or in the args and the state of a cron. It is decrypted (opened)
// when a request is sent. Responses contain Mask in its place. A value such as "Bearer
// ${secret:NAME}" refers to a row of the table secrets, which is read when a request is sent. Start
// with Vault.
package secrets
