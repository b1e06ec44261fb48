package main

import (
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// The state of a TCP connection whose other side has closed it (CLOSE_WAIT of the kernel's tcp_states.h).
const closedByPeer = 8

// join gives each connection of the socket one of the port. The test opens several of those in advance, which wait in
// the kernel's queue; gRPC's server closes one that stays unused for two minutes, so the oldest may be dead.
func join(socket, port net.Listener) error {
	for {
		inner, err := socket.Accept()
		if err != nil {
			return fmt.Errorf("the socket takes no more connections: %w", err)
		}
		outer, err := acceptLiving(port)
		if err != nil {
			return fmt.Errorf("the port takes no more connections: %w", err)
		}
		klog.V(5).Infof("joined %s with %s", socket.Addr(), outer.RemoteAddr())
		go pass(inner, outer)
	}
}

func acceptLiving(port net.Listener) (net.Conn, error) {
	for {
		outer, err := port.Accept()
		if err != nil || !isDead(outer) {
			return outer, err
		}
		klog.V(5).Infof("dropped a connection that %s had closed", outer.RemoteAddr())
		outer.Close()
	}
}

func isDead(outer net.Conn) bool {
	raw, err := outer.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false
	}
	dead := false
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		dead = err == nil && info.State == closedByPeer
	})
	return dead
}

// pass ends both connections with the first that ends: neither gRPC nor a port forward goes on with half of one.
func pass(inner, outer net.Conn) {
	var once sync.Once
	end := func() { inner.Close(); outer.Close() }
	for _, way := range [][2]net.Conn{{inner, outer}, {outer, inner}} {
		go func() {
			defer once.Do(end)
			_, _ = io.Copy(way[0], way[1])
		}()
	}
}
