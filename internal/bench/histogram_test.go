package bench

import (
	"math"
	"testing"
	"time"
)

func TestBucketsFollowEachOther(t *testing.T) {
	for bucket := 1; bucket < histogramBuckets; bucket++ {
		middle := bucketMiddle(bucket)
		if middle <= bucketMiddle(bucket-1) {
			t.Fatalf("bucket %d represents %d, the previous one %d", bucket, middle, bucketMiddle(bucket-1))
		}
		if got := bucketOf(middle); got != bucket {
			t.Fatalf("bucket %d represents %d, which is in bucket %d", bucket, middle, got)
		}
	}
	for _, d := range []time.Duration{math.MinInt64, -1, 0} {
		if got := bucketOf(d); got != 0 {
			t.Errorf("%d is in bucket %d, want 0", d, got)
		}
	}
	if got := bucketOf(math.MaxInt64); got != histogramBuckets-1 {
		t.Errorf("the longest duration is in bucket %d of %d", got, histogramBuckets)
	}
}

func TestQuantileIsWithinThreePercent(t *testing.T) {
	var all, even, odd histogram
	for n := 1; n <= 100_000; n++ {
		d := time.Duration(n) * time.Microsecond
		all.add(d)
		if n%2 == 0 {
			even.add(d)
		} else {
			odd.add(d)
		}
	}
	even.merge(&odd)
	if even != all {
		t.Error("the merged halves differ from the whole")
	}
	for _, q := range []float64{0.001, 0.25, 0.5, 0.99, 0.999, 1} {
		want := q * 100_000 * float64(time.Microsecond)
		got := float64(all.quantile(q))
		if math.Abs(got-want) > want*0.03 {
			t.Errorf("quantile %g is %g, want %g within 3 %%", q, got, want)
		}
	}
}

func TestQuantileOfNothingIsZero(t *testing.T) {
	if got := new(histogram).quantile(0.5); got != 0 {
		t.Errorf("quantile of an empty histogram is %s", got)
	}
}
