package bench

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets that grow with the value, like HDR histograms. Up to 64 ns,
// every value has its own bucket. Above that, each power of two has 32 buckets, so a quantile is
// off by at most 3 %. The zero value is empty.
type histogram struct {
	counts [histogramBuckets]uint64
	n      uint64
}

const (
	histogramBits    = 5
	histogramSub     = 1 << histogramBits
	histogramBuckets = (63-histogramBits)*histogramSub + histogramSub
)

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := bits.Len64(v) - histogramBits - 1
	if shift <= 0 {
		return int(v)
	}
	return shift*histogramSub + int(v>>shift)
}

// bucketMiddle returns the value that represents a bucket.
func bucketMiddle(bucket int) time.Duration {
	shift := bucket/histogramSub - 1
	if shift <= 0 {
		return time.Duration(bucket)
	}
	low := (bucket%histogramSub + histogramSub) << shift
	return time.Duration(low + 1<<shift/2)
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.n++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.n += other.n
}

// quantile returns the value that the portion q (0 to 1) of all values does not exceed, or 0 if
// there are none.
func (h *histogram) quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := min(uint64(q*float64(h.n)), h.n-1)
	for bucket, n := range h.counts {
		if rank < n {
			return bucketMiddle(bucket)
		}
		rank -= n
	}
	return 0
}
