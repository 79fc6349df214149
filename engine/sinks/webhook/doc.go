// Package webhook delivers changes by HTTP, according to Standard Webhooks
// (https://www.standardwebhooks.com): each change is one signed POST.
//
// A request that was not answered with 2xx is repeated with the same webhook-id, so that a receiver
// can recognize it. The deliverer remembers which changes of a batch were accepted and does not
// send them again when the batch is repeated. Start with New in webhook.go.
package webhook
