// SPDX-License-Identifier: MIT OR Apache-2.0

//! Many messages in one call.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::ptr;

use iwarp_mem::{OutOfMemory, filled};

use super::control::{NAME, Writer, put_name, space};
use super::{DatagramSocket, Glimpse};

/// The most packets that every system cuts from one message.
pub const MAX_SEGMENTS: usize = 64;

/// A message on its way out.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The octets in it.
    pub octets: &'a [u8],
    /// Destination address and port.
    pub destination: SocketAddr,
    /// The address that it goes from, one of this host.
    pub source: IpAddr,
    /// Index of the interface that it goes by; 0: by the routes.
    pub interface: u32,
    /// Bytes of each packet, but the last, which may have fewer. All go in one packet where this
    /// is no less than there are.
    pub segment: usize,
    /// DSCP and ECN bits; `None`: the socket's.
    pub traffic_class: Option<u8>,
    /// Time to live, or hop limit, from 1 on; `None`: the system's default.
    pub hop_limit: Option<u8>,
    /// IPv6 flow label, 20 bits; 0: the system's choice.
    pub flow_label: u32,
}

impl Outgoing<'_> {
    /// True if it is more than one packet.
    pub const fn is_train(&self) -> bool {
        self.segment < self.octets.len()
    }
}

/// The reason why a message was not sent. Messages behind it may be.
#[derive(Debug)]
pub enum Refusal {
    /// The socket's send buffer is full: the socket becomes writable when it is not.
    Full,
    /// A packet is longer than the interface or, as far as that is known, the path takes.
    TooLong,
    /// The route or the device cannot cut packets from this message (or the system has no
    /// `UDP_SEGMENT`): they may go one by one.
    Segmenting,
    /// It is lost, as on a network: a peer or a route that is not there, a firewall, no memory.
    Lost(io::Error),
    /// The socket is not ours any more, or a mistake was made in using it.
    Failed(io::Error),
}

impl Refusal {
    fn of(error: io::Error, train: bool) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Self::Full,
            Some(libc::EMSGSIZE) => Self::TooLong,
            Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP) if train => Self::Segmenting,
            Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EAFNOSUPPORT) => {
                Self::Failed(error)
            }
            _ => Self::Lost(error),
        }
    }
}

/// The packet information of IPv6, three numbers and the length of segments, and the flags of a
/// glimpse.
const CONTROL: usize = space(size_of::<libc::in6_pktinfo>()) + 5 * space(size_of::<u32>());

/// Storage in which messages are made ready for one call; used again for the next.
pub struct SendBatch {
    slots: Box<[Slot]>,
    headers: Box<[libc::mmsghdr]>,
}

// SAFETY: the pointers in `headers` are written and used within one call, which borrows the batch
// for itself; between calls they are not followed.
unsafe impl Send for SendBatch {}
// SAFETY: as above; by a shared reference there is nothing to be done with it.
unsafe impl Sync for SendBatch {}

struct Slot {
    name: [u8; NAME],
    iov: libc::iovec,
    control: [u8; CONTROL],
}

impl SendBatch {
    /// One for so many messages in one call, at least one. They are what one system call takes.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub fn new(messages: usize) -> Result<Self, OutOfMemory> {
        let slot = || Slot {
            name: [0; NAME],
            iov: libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 },
            control: [0; CONTROL],
        };
        let messages = messages.max(1);
        Ok(Self { slots: filled(messages, slot)?, headers: empty_headers(messages)? })
    }
}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBatch").field("messages", &self.slots.len()).finish()
    }
}

/// Headers of messages with nothing in them.
pub(super) fn empty_headers(messages: usize) -> Result<Box<[libc::mmsghdr]>, OutOfMemory> {
    // SAFETY: plain data, for which all zeros is a value.
    filled(messages, || unsafe { std::mem::zeroed() })
}

impl DatagramSocket {
    /// Sends messages, as many as the batch takes in one call, and returns how many were taken:
    /// those behind them were not, and the next call says why. Never waits, never raises SIGPIPE,
    /// and carries on when a signal interrupts it.
    ///
    /// # Errors
    ///
    /// The reason why the first was not taken; then none was.
    pub fn send<'a>(
        &self,
        batch: &mut SendBatch,
        messages: impl IntoIterator<Item = Outgoing<'a>>,
    ) -> Result<usize, Refusal> {
        let SendBatch { slots, headers } = batch;
        let mut count = 0;
        let mut train = false;
        for ((slot, header), message) in slots.iter_mut().zip(headers.iter_mut()).zip(messages) {
            train |= count == 0 && message.is_train();
            self.fill(slot, header, &message, false);
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        let (fd, flags) = (self.as_raw_fd(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        let first = headers[0].msg_hdr;
        loop {
            // SAFETY: the first `count` headers were just filled: they point to their slots, which
            // are borrowed for this call, and to bytes that `'a` outlives it with.
            let sent = unsafe {
                if count > 1 {
                    libc::syscall(libc::SYS_sendmmsg, fd, headers.as_mut_ptr(), count, flags)
                } else if first.msg_control.is_null() {
                    // One that needs no header, which spares the kernel the copying of it.
                    let (name, len) = (first.msg_name, first.msg_namelen);
                    let iov = &slots[0].iov;
                    let octets = (iov.iov_base, iov.iov_len);
                    let call = libc::SYS_sendto;
                    libc::syscall(call, fd, octets.0, octets.1, flags, name, len).min(1)
                } else {
                    libc::syscall(libc::SYS_sendmsg, fd, &raw mut headers[0].msg_hdr, flags).min(1)
                }
            };
            if let Ok(sent) = usize::try_from(sent) {
                // A message of no bytes, sent alone, is one as well.
                return Ok(sent.max(1));
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(Refusal::of(error, train));
            }
        }
    }

    /// Sends one message and asks for its headers as they left.
    pub(super) fn send_watched(&self, message: &Outgoing<'_>) -> io::Result<()> {
        let mut batch = SendBatch::new(1).unwrap();
        let header = &mut batch.headers[0];
        self.fill(&mut batch.slots[0], header, message, true);
        // SAFETY: as in `send`.
        let sent = unsafe {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            libc::syscall(libc::SYS_sendmmsg, self.as_raw_fd(), ptr::from_mut(header), 1, flags)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn fill(
        &self,
        slot: &mut Slot,
        header: &mut libc::mmsghdr,
        message: &Outgoing<'_>,
        watched: bool,
    ) {
        let mut control = Writer::new(&mut slot.control);
        if message.is_train() {
            let segment = message.segment.min(usize::from(u16::MAX)) as u16;
            control.put(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        if message.source != self.local.ip() || message.interface != 0 {
            control.put_source(message.source, message.interface);
        }
        let ipv6 = message.destination.is_ipv6();
        let (ip, class, hops) = if ipv6 {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
        } else {
            (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
        };
        if let Some(value) = message.traffic_class {
            control.put_int(ip, class, value.into());
        }
        if let Some(value) = message.hop_limit {
            control.put_int(ip, hops, value.into());
        }
        if message.flow_label != 0 && ipv6 {
            let label = (message.flow_label & 0xf_ffff).to_be_bytes();
            control.put(ip, libc::IPV6_FLOWINFO, &label);
        }
        if watched {
            control.put(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &Glimpse::ASKED.to_ne_bytes());
        }
        let control_len = control.len();
        let name_len = put_name(&mut slot.name, message.destination);
        slot.iov.iov_base = message.octets.as_ptr().cast_mut().cast();
        slot.iov.iov_len = message.octets.len();
        let header = &mut header.msg_hdr;
        header.msg_name = slot.name.as_mut_ptr().cast();
        header.msg_namelen = name_len as _;
        header.msg_iov = &raw mut slot.iov;
        header.msg_iovlen = 1;
        header.msg_control =
            if control_len == 0 { ptr::null_mut() } else { slot.control.as_mut_ptr().cast() };
        header.msg_controllen = control_len as _;
    }
}
