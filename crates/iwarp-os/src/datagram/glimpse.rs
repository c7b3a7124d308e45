// SPDX-License-Identifier: MIT OR Apache-2.0

//! The headers of a packet as it left.
//!
//! A process without rights does not see the packets of its host. But a sender may ask when a
//! packet was handed to the device (`SO_TIMESTAMPING`), and then gets the packet back, with all its
//! headers, behind the firewall's and the routing's changes of it. Administrators may switch that
//! off (`net.core.tstamp_allow_data`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

use super::control::field;
use super::{DatagramSocket, Outgoing};

/// The values in the headers of a packet when it was handed to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Glimpse {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Identification of an IPv4 packet, and whether it must not be fragmented. (Of a train, those
    /// of its first packet.)
    pub id: Option<(u16, bool)>,
    /// DSCP and ECN bits.
    pub traffic_class: u8,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// Flow label of an IPv6 packet, else 0.
    pub flow_label: u32,
    /// Bytes of the UDP header and all behind it, as that says.
    pub udp_len: u16,
}

/// Bytes of the headers of a link, at most.
const LINK: usize = 64;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;

impl Glimpse {
    /// Asks for it as it is handed to the device's queue.
    pub(super) const ASKED: u32 = libc::SOF_TIMESTAMPING_TX_SCHED;

    /// Reads a packet with its headers, of which the payload has so many bytes.
    fn read(packet: &[u8], payload: usize, ipv6: bool) -> Option<Self> {
        let udp = packet.len().checked_sub(payload + UDP)?;
        let port = |at| Some(u16::from_be_bytes(field(packet, udp + at)?));
        let (ip, headers) =
            if ipv6 { (udp.checked_sub(IPV6)?, 6) } else { (udp.checked_sub(IPV4)?, 4) };
        let ip = &packet[ip..];
        // With extension headers or options it is none of ours.
        if ip[0] >> 4 != headers {
            return None;
        }
        let (source, destination): (IpAddr, IpAddr) = if ipv6 {
            (field::<16>(ip, 8)?.into(), field::<16>(ip, 24)?.into())
        } else {
            (field::<4>(ip, 12)?.into(), field::<4>(ip, 16)?.into())
        };
        let word = u32::from_be_bytes(field(ip, 0)?);
        let id = (!ipv6).then(|| (u16::from_be_bytes([ip[4], ip[5]]), ip[6] & 0x40 != 0));
        Some(Self {
            source: SocketAddr::new(source, port(0)?),
            destination: SocketAddr::new(destination, port(2)?),
            id,
            traffic_class: if ipv6 { (word >> 20) as u8 } else { ip[1] },
            hop_limit: if ipv6 { ip[7] } else { ip[8] },
            flow_label: if ipv6 { word & 0xf_ffff } else { 0 },
            udp_len: port(4)?,
        })
    }
}

impl DatagramSocket {
    /// Sends a message and says how its headers left, for which it waits so long. `None` where
    /// nothing was seen: the system does not tell, or the packet has not left yet.
    ///
    /// # Errors
    ///
    /// As for `sendmsg(2)`.
    pub fn glimpse(&self, message: &Outgoing<'_>, wait: Duration) -> io::Result<Option<Glimpse>> {
        self.send_watched(message)?;
        let ipv6 = message.destination.is_ipv6();
        let deadline = crate::clock::now().saturating_add(wait);
        let mut packet = vec![0; message.octets.len() + LINK + IPV6 + UDP];
        loop {
            if let Some(len) = self.returned(&mut packet)? {
                return Ok(Glimpse::read(&packet[..len], message.octets.len(), ipv6));
            }
            let left = deadline.saturating_sub(crate::clock::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.wait_returned(left)?;
        }
    }

    /// A packet that came back; `None` where there is none.
    fn returned(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the system writes to `packet` alone, and no more than it has; no address is asked
        // for.
        let got = unsafe {
            let (to, len) = (packet.as_mut_ptr(), packet.len());
            let none = ptr::null_mut::<u8>();
            libc::syscall(libc::SYS_recvfrom, self.as_raw_fd(), to, len, flags, none, none)
        };
        match usize::try_from(got) {
            Ok(len) => Ok(Some(len)),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            },
        }
    }

    fn wait_returned(&self, wait: Duration) -> io::Result<()> {
        let fd = self.as_fd();
        let mut polled = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::ERR)];
        let wait = rustix::event::Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: wait.subsec_nanos().into(),
        };
        match rustix::event::poll(&mut polled, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
