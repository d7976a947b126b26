package netlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// ceilingWarmUp is the time for TCP to open its window. ceilingTime is the time that is measured.
	ceilingWarmUp = 500 * time.Millisecond
	ceilingTime   = time.Second
	ceilingPings  = 20
	datagramBytes = 64
	streamBytes   = 256 << 10 // bytes of one write
	discardPort   = 9
)

// Ceiling is the most that the network carries between its first two nodes, with
// sender and receiver on this machine's processors beside it.
type Ceiling struct {
	Packets Load // small datagrams, per second
	Bytes   Load // one TCP stream, bytes per second
}

// Load is how much was carried, and how that affected others.
type Load struct {
	PerSecond float64
	// Processors that the switch used, about 1 at most (its runtime has threads of its
	// own); 0 without a switch.
	Processors float64
	// RTT is the round trip between the two nodes meanwhile: an echo waits behind all other packets.
	RTT RTT
}

// Ceiling measures for about three seconds.
func (n *Network) Ceiling(ctx context.Context) (Ceiling, error) {
	var c Ceiling
	var err error
	if c.Packets, err = n.flood(ctx); err != nil {
		return Ceiling{}, fmt.Errorf("measure packets per second: %w", err)
	}
	if c.Bytes, err = n.stream(ctx); err != nil {
		return Ceiling{}, fmt.Errorf("measure bytes per second: %w", err)
	}
	return c, nil
}

// measure runs carry, which returns when its context ends, and reads count at
// the ends of the measured time.
func (n *Network) measure(ctx context.Context, count func() uint64, carry func(context.Context) error) (Load, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return carry(ctx) })
	var load Load
	group.Go(func() error {
		defer stop()
		if err := sleep(ctx, ceilingWarmUp); err != nil {
			return err
		}
		start, from, cpu := time.Now(), count(), n.Stats().CPU
		if err := sleep(ctx, ceilingTime); err != nil {
			return err
		}
		took := time.Since(start)
		load.PerSecond = float64(count()-from) / took.Seconds()
		load.Processors = float64(n.Stats().CPU-cpu) / float64(took)
		rtt, err := n.MeasureRTT(ctx, n.topology.Nodes[0], n.topology.Nodes[1], ceilingPings)
		load.RTT = rtt
		return err
	})
	err := group.Wait()
	return load, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// flood sends datagrams to a socket that nobody reads: its kernel drops them
// after they have come over the network.
func (n *Network) flood(ctx context.Context) (Load, error) {
	from, to := n.topology.Nodes[0], n.topology.Nodes[1]
	target := netip.AddrPortFrom(n.Addr(to), discardPort).String()
	ns, err := n.namespaceOf(to)
	if err != nil {
		return Load{}, err
	}
	var sink net.PacketConn
	err = ns.inside(func() (err error) {
		sink, err = new(net.ListenConfig).ListenPacket(ctx, "udp4", target)
		return err
	})
	if err != nil {
		return Load{}, err
	}
	defer sink.Close()
	source, err := n.DialContext(from)(ctx, "udp4", target)
	if err != nil {
		return Load{}, err
	}
	defer source.Close()
	var sent atomic.Uint64
	count := sent.Load // a veth pair carries what was sent
	if !n.topology.direct(from, to) {
		count = func() uint64 { return n.Stats().Packets }
	}
	return n.measure(ctx, count, func(ctx context.Context) error {
		datagram := make([]byte, datagramBytes)
		for ctx.Err() == nil {
			if _, err := source.Write(datagram); err != nil {
				return err
			}
			sent.Add(1)
		}
		return nil
	})
}

// stream sends one TCP stream and counts what arrives.
func (n *Network) stream(ctx context.Context) (Load, error) {
	from, to := n.topology.Nodes[0], n.topology.Nodes[1]
	listener, err := n.Listen(ctx, to, discardPort)
	if err != nil {
		return Load{}, err
	}
	defer listener.Close()
	source, err := n.DialContext(from)(ctx, "tcp4", listener.Addr().String())
	if err != nil {
		return Load{}, err
	}
	defer source.Close()
	sink, err := listener.Accept()
	if err != nil {
		return Load{}, err
	}
	defer sink.Close()
	var received atomic.Uint64
	return n.measure(ctx, received.Load, func(ctx context.Context) error {
		end := context.AfterFunc(ctx, func() { _ = source.Close(); _ = sink.Close() })
		defer end()
		var group errgroup.Group
		group.Go(func() error {
			b := make([]byte, streamBytes)
			for {
				if _, err := source.Write(b); err != nil {
					return err
				}
			}
		})
		group.Go(func() error {
			b := make([]byte, streamBytes)
			for {
				k, err := sink.Read(b)
				if err != nil {
					return err
				}
				received.Add(uint64(k))
			}
		})
		if err := group.Wait(); !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) && ctx.Err() == nil {
			return err
		}
		return nil
	})
}
