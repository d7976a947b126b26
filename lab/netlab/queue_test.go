package netlab

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const ms = time.Millisecond

func testDice() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// offer hands the queue a packet as the switch does.
func offer(q *queue, now time.Duration, size int, dice *rand.Rand) verdict {
	release, v := q.judge(now, size, dice)
	if v == queued {
		q.push(packet{release, make([]byte, size)})
	}
	return v
}

// releases empties the queue and returns when its packets were due.
func releases(t *testing.T, q *queue) []time.Duration {
	t.Helper()
	var all []time.Duration
	for at, ok := q.next(); ok; at, ok = q.next() {
		if _, due := q.pop(at - 1); due {
			t.Fatalf("a packet that is due at %v was released before", at)
		}
		if _, due := q.pop(at); !due {
			t.Fatalf("a packet that is due at %v was not released", at)
		}
		all = append(all, at)
	}
	if q.bytes != 0 {
		t.Errorf("an empty queue counts %d bytes", q.bytes)
	}
	return all
}

func TestQueueDelays(t *testing.T) {
	q := &queue{link: Link{Delay: 15 * ms}}
	for _, at := range []time.Duration{0, 1 * ms, 1 * ms, 40 * ms} {
		if v := offer(q, at, 100, nil); v != queued {
			t.Fatalf("packet at %v: verdict %v", at, v)
		}
	}
	want := []time.Duration{15 * ms, 16 * ms, 16 * ms, 55 * ms}
	if diff := cmp.Diff(want, releases(t, q)); diff != "" {
		t.Errorf("releases (-want +got):\n%s", diff)
	}
}

// TestQueueDelayLowered: packets that come after the link has become faster do
// not overtake.
func TestQueueDelayLowered(t *testing.T) {
	q := &queue{link: Link{Delay: 15 * ms}}
	offer(q, 0, 100, nil)
	q.link.Delay = 1 * ms
	offer(q, 1*ms, 100, nil)
	offer(q, 20*ms, 100, nil)
	want := []time.Duration{15 * ms, 15 * ms, 21 * ms}
	if diff := cmp.Diff(want, releases(t, q)); diff != "" {
		t.Errorf("releases (-want +got):\n%s", diff)
	}
}

func TestQueueJitterKeepsOrderAndBounds(t *testing.T) {
	q := &queue{link: Link{Delay: 10 * ms, Jitter: 4 * ms}}
	dice := testDice()
	const packets, apart = 1000, 20 * ms // no packet has to wait for another
	for i := range packets {
		offer(q, time.Duration(i)*apart, 100, dice)
	}
	low, high, sum := time.Hour, time.Duration(0), time.Duration(0)
	for i, at := range releases(t, q) {
		took := at - time.Duration(i)*apart
		low, high, sum = min(low, took), max(high, took), sum+took
	}
	if low < 6*ms || low > 7*ms || high > 14*ms || high < 13*ms {
		t.Errorf("delays from %v to %v, want nearly 6ms to 14ms", low, high)
	}
	if mean := sum / packets; mean < 9700*time.Microsecond || mean > 10300*time.Microsecond {
		t.Errorf("mean delay %v, want 10ms", mean)
	}
	for range packets { // all at once: in order
		offer(q, 0, 100, dice)
	}
	last := time.Duration(0)
	for _, at := range releases(t, q) {
		if at < last {
			t.Fatalf("a packet is released at %v, after one at %v", at, last)
		}
		last = at
	}
}

func TestQueueLoses(t *testing.T) {
	for _, perMille := range []int{0, 100, 1000} {
		q := &queue{link: Link{LossPerMille: perMille}}
		dice, losses := testDice(), 0
		for range 10_000 {
			if offer(q, 0, 1, dice) == lost {
				losses++
			}
		}
		want := perMille * 10
		if losses < want-want/10 || losses > want+want/10 {
			t.Errorf("%d per mille: lost %d of 10000, want about %d", perMille, losses, want)
		}
	}
}

func TestQueueRate(t *testing.T) {
	q := &queue{link: Link{Delay: 5 * ms, RateBytesPerSecond: 1_000_000}}
	for range 3 {
		offer(q, 0, 1000, nil)
	}
	offer(q, 10*ms, 2000, nil) // the line has been free since 3 ms
	want := []time.Duration{6 * ms, 7 * ms, 8 * ms, 17 * ms}
	if diff := cmp.Diff(want, releases(t, q)); diff != "" {
		t.Errorf("releases (-want +got):\n%s", diff)
	}
	accepted := 0
	for offer(q, 100*ms, 1000, nil) == queued {
		accepted++
	}
	if want := int(lineWaitMax/ms) + 1; accepted != want {
		t.Errorf("%d packets of 1 ms were accepted, want %d", accepted, want)
	}
}

func TestQueueIsBounded(t *testing.T) {
	for _, c := range []struct{ size, want int }{{1, queuePacketsMax}, {64 << 10, queueBytesMax / (64 << 10)}} {
		q := &queue{link: Link{Delay: ms}}
		buffer, accepted := make([]byte, c.size), 0
		for {
			release, v := q.judge(0, c.size, nil)
			if v == full {
				break
			}
			q.push(packet{release, buffer})
			accepted++
		}
		if accepted != c.want {
			t.Errorf("packets of %d bytes: %d fit, want %d", c.size, accepted, c.want)
		}
		q.pop(ms)
		if _, v := q.judge(ms, c.size, nil); v != queued {
			t.Errorf("packets of %d bytes: after one was released the next has verdict %v", c.size, v)
		}
	}
}

func TestQueueCut(t *testing.T) {
	q := &queue{link: Link{Cut: true}}
	if v := offer(q, 0, 1, nil); v != cutOff {
		t.Errorf("verdict %v, want %v", v, cutOff)
	}
	q.link.Cut = false
	if v := offer(q, 0, 1, nil); v != queued {
		t.Errorf("mended: verdict %v, want %v", v, queued)
	}
}

func TestRingIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r ring
		var model []time.Duration
		next := time.Duration(0)
		for range rapid.IntRange(0, 500).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "push") > 0 {
				r.push(packet{release: next})
				model = append(model, next)
				next++
			} else if len(model) > 0 {
				if got := r.pop().release; got != model[0] {
					t.Fatalf("popped %d, want %d", got, model[0])
				}
				model = model[1:]
			}
			if r.len() != len(model) || (len(model) > 0 && r.front().release != model[0]) {
				t.Fatalf("ring of %d, want %d", r.len(), len(model))
			}
		}
	})
}

func TestPoolKeepsBuffersWithinBounds(t *testing.T) {
	var p pool
	for _, size := range []int{1, 256, 257, 9000, frameBytesMax} {
		frame := bytes.Repeat([]byte{byte(size)}, size)
		b := p.copyOf(frame)
		if !bytes.Equal(b, frame) {
			t.Fatalf("the copy of %d bytes differs", size)
		}
		p.put(b)
		if again := p.copyOf(frame[:1]); size > 1 && size <= 256 && &again[0] != &b[0] {
			t.Errorf("the buffer of %d bytes was not used again", size)
		}
	}
	for range 2 * poolBytesMax / frameBytesMax {
		p.put(make([]byte, frameBytesMax))
	}
	if kept := len(p.free[3]); kept != poolBytesMax/frameBytesMax {
		t.Errorf("%d large buffers are kept, want %d", kept, poolBytesMax/frameBytesMax)
	}
}
