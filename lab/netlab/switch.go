package netlab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/sys/subprocess"
)

const (
	// readBatch is how many packets of one node are read before packets that became
	// due meanwhile are written.
	readBatch = 16
	// switchPriority is the switch's priority among SCHED_FIFO threads, the lowest. So the switch
	// runs before servers and clients, because a real switch has a processor of
	// its own. With 18 other processes that wanted two processors, 99 of 100 pings of 1 ms
	// took up to 1.3 ms; with nice -20, 2 to 8 ms. The kernel leaves the other processes
	// 5 % in any case (sched_rt_runtime_us).
	switchPriority = 1
	// switchNice is used where SCHED_FIFO is not allowed.
	switchNice = -20
	// lead is subtracted from each packet's time in the switch, because the way through the switch costs
	// time of its own: a wake-up to read and one to write (measured on an idle
	// virtual machine: 70 µs more than configured on a ping of 1 ms).
	lead = 35 * time.Microsecond
)

// Stats counts what the switch has done since Up.
type Stats struct {
	Packets, Bytes uint64 // delivered
	Lost           uint64 // by Link.LossPerMille
	Cut            uint64 // by Link.Cut
	Full           uint64 // dropped because a queue was full
	Refused        uint64 // not accepted by the destination's kernel
	CPU            time.Duration
}

// tunSwitch carries packets between TUN devices. One thread does all the work: a
// packet needs two system calls and no other thread. mu is held while packets
// are moved, so that a cut is complete when setLink returns.
type tunSwitch struct {
	fds      []int // a TUN device for each node
	networkA [3]byte
	epoll    int
	wake     int          // eventfd: stop
	stop     atomic.Bool  // set before wake
	thread   atomic.Int64 // the loop's thread id
	done     chan struct{}
	err      error // after done

	mu     sync.Mutex
	queues [][]*queue // [from][to], nil on the diagonal and where there is no link
	stats  Stats
	pool   pool
	dice   *rand.Rand
	origin time.Time
	frame  []byte
}

// newSwitch takes over fds.
func newSwitch(t Topology, fds []int) (*tunSwitch, error) {
	s := &tunSwitch{
		fds: fds, epoll: -1, wake: -1, done: make(chan struct{}), origin: time.Now(),
		dice: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), frame: make([]byte, frameBytesMax),
	}
	first := t.addr(0).As4()
	copy(s.networkA[:], first[:3])
	for _, from := range t.Nodes {
		row := make([]*queue, len(t.Nodes))
		for j, to := range t.Nodes {
			if l, ok := t.Links[Pair{from, to}]; ok {
				row[j] = &queue{link: l}
			}
		}
		s.queues = append(s.queues, row)
	}
	var err error
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		s.closeFiles()
		return nil, fmt.Errorf("make epoll instance: %w", err)
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		s.closeFiles()
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	for i, fd := range append(fds[:len(fds):len(fds)], s.wake) {
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
			s.closeFiles()
			return nil, fmt.Errorf("watch TUN device: %w", err)
		}
	}
	return s, nil
}

// start runs the loop on a thread of its own until close. It calls failed if
// the loop ends before.
func (s *tunSwitch) start(failed func(error)) {
	subprocess.OnThread(func() {
		defer close(s.done)
		if s.err = s.loop(); s.err != nil {
			failed(s.err)
		}
	})
}

// close stops the loop and closes the devices. It must have been started.
func (s *tunSwitch) close() error {
	s.stop.Store(true)
	one := [8]byte{1}
	_, err := unix.Write(s.wake, one[:])
	if err == nil {
		<-s.done
		err = s.err
	}
	s.closeFiles()
	return err
}

func (s *tunSwitch) closeFiles() {
	for _, fd := range append(s.fds, s.epoll, s.wake) {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	s.fds, s.epoll, s.wake = nil, -1, -1
}

// setLink changes a link. A cut drops the packets under way.
func (s *tunSwitch) setLink(from, to int, l Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[from][to]
	q.link = l
	for l.Cut {
		at, more := q.next()
		if !more {
			break
		}
		p, _ := q.pop(at)
		s.stats.Cut++
		s.pool.put(p.buffer)
	}
}

func (s *tunSwitch) link(from, to int) Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues[from][to].link
}

func (s *tunSwitch) snapshot() Stats {
	s.mu.Lock()
	stats := s.stats
	s.mu.Unlock()
	stats.CPU = threadCPU(int(s.thread.Load()))
	return stats
}

// threadCPU is the processor time of one of our threads: the clock ids of
// pthread_getcpuclockid(3), from the kernel's include/linux/posix-timers.h.
func threadCPU(thread int) time.Duration {
	const perThread, sched = 4, 2
	var t unix.Timespec
	if thread == 0 || unix.ClockGettime(int32(^thread<<3|perThread|sched), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// preferThread gives the calling thread a higher priority, so that it runs when packets are due. If the kernel
// allows none of it, the switch works, but delivers late.
func preferThread() {
	fifo := &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: switchPriority,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}
	if unix.SchedSetAttr(0, fifo, 0) != nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, switchNice)
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

func (s *tunSwitch) loop() error {
	s.thread.Store(int64(unix.Gettid()))
	preferThread()
	events := make([]unix.EpollEvent, len(s.fds)+1)
	wait := time.Duration(-1)
	for {
		n, err := s.wait(events, wait)
		if err != nil {
			return fmt.Errorf("wait for packets: %w", err)
		}
		if s.stop.Load() {
			return nil
		}
		s.mu.Lock()
		for _, e := range events[:n] {
			if err = s.read(int(e.Fd)); err != nil {
				break
			}
		}
		wait = s.release()
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// wait returns when a device has packets or after wait, to the microsecond; a
// negative wait has no end.
func (s *tunSwitch) wait(events []unix.EpollEvent, wait time.Duration) (int, error) {
	timeout := unix.NsecToTimespec(int64(wait))
	limit := &timeout
	if wait < 0 {
		limit = nil
	}
	call := unix.Syscall6
	if wait == 0 {
		call = unix.RawSyscall6 // it does not block: no need to tell Go's scheduler
	}
	n, _, errno := call(unix.SYS_EPOLL_PWAIT2, uintptr(s.epoll), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(unsafe.Pointer(limit)), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, errno
}

func (s *tunSwitch) now() time.Duration { return time.Since(s.origin) }

// read takes packets of node from's device to their queues.
func (s *tunSwitch) read(from int) error {
	for range readBatch {
		n, err := rawRead(s.fds[from], s.frame)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read packet: %w", err)
		}
		s.accept(from, s.frame[:n])
	}
	return nil
}

// accept queues a frame. It drops frames that are not IPv4 for another node, such as the kernel's IPv6
// greetings.
func (s *tunSwitch) accept(from int, frame []byte) {
	const version, destination, ipv4HeaderBytes = vnetHeaderBytes, vnetHeaderBytes + 16, 20
	if len(frame) < vnetHeaderBytes+ipv4HeaderBytes || frame[version]>>4 != 4 ||
		[3]byte(frame[destination:destination+3]) != s.networkA {
		return
	}
	to := int(frame[destination+3]) - 1
	if to < 0 || to >= len(s.queues) || s.queues[from][to] == nil {
		return
	}
	q := s.queues[from][to]
	release, v := q.judge(s.now()-lead, len(frame), s.dice)
	switch v {
	case queued:
		q.push(packet{release, s.pool.copyOf(frame)})
	case lost:
		s.stats.Lost++
	case cutOff:
		s.stats.Cut++
	case full:
		s.stats.Full++
	}
}

// release delivers the packets that are due and returns the time until the next one is due; negative
// = there is none. It looks at all queues: there are only 30.
func (s *tunSwitch) release() time.Duration {
	now := s.now()
	earliest := time.Duration(-1)
	for _, row := range s.queues {
		for to, q := range row {
			if q == nil {
				continue
			}
			for p, due := q.pop(now); due; p, due = q.pop(now) {
				s.deliver(to, p)
			}
			if at, ok := q.next(); ok && (earliest < 0 || at < earliest) {
				earliest = at
			}
		}
	}
	if earliest < 0 {
		return -1
	}
	return max(earliest-s.now(), 0)
}

func (s *tunSwitch) deliver(to int, p packet) {
	if rawWrite(s.fds[to], p.buffer) == nil {
		s.stats.Packets++
		s.stats.Bytes += uint64(len(p.buffer) - vnetHeaderBytes)
	} else {
		s.stats.Refused++
	}
	s.pool.put(p.buffer)
}

// rawRead and rawWrite do not tell Go's scheduler: the descriptors do not block.
func rawRead(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func rawWrite(fd int, b []byte) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))); errno != 0 {
		return errno
	}
	return nil
}

// pool keeps the buffers of packets for the next packets, in sizes of which a packet wastes
// little. Only the switch uses it.
type pool struct{ free [4][][]byte }

// poolBytesMax bounds how many bytes are kept of each size.
const poolBytesMax = 4 << 20

func poolSizes() [4]int { return [4]int{256, 2 << 10, 10 << 10, frameBytesMax} }

func (p *pool) copyOf(frame []byte) []byte {
	for i, size := range poolSizes() {
		if len(frame) > size {
			continue
		}
		var b []byte
		if n := len(p.free[i]); n > 0 {
			b, p.free[i] = p.free[i][n-1], p.free[i][:n-1]
		} else {
			b = make([]byte, size)
		}
		return b[:copy(b[:size], frame)]
	}
	return append([]byte(nil), frame...)
}

func (p *pool) put(b []byte) {
	for i, size := range poolSizes() {
		if cap(b) == size && len(p.free[i]) < poolBytesMax/size {
			p.free[i] = append(p.free[i], b)
		}
	}
}
