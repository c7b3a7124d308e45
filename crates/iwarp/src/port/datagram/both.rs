// SPDX-License-Identifier: MIT OR Apache-2.0

//! One port of two: for packets of IPv4 and of IPv6.

use std::io;
use std::net::{IpAddr, SocketAddr};

use iwarp_types::{Numbering, Path, Trains};

use super::{BurstCursor, DatagramCounters, DatagramPort, Findings, Intake, Packets, Sent};
use crate::port::{Descriptors, Readiness, Waker};

/// Packets go and come by the port of their family.
#[derive(Debug)]
pub struct BothFamilies {
    v4: Box<dyn DatagramPort>,
    v6: Box<dyn DatagramPort>,
}

impl BothFamilies {
    /// Both must have a descriptor, or neither.
    pub fn new(v4: Box<dyn DatagramPort>, v6: Box<dyn DatagramPort>) -> Self {
        Self { v4, v6 }
    }

    fn of(&self, ip: IpAddr) -> &dyn DatagramPort {
        if ip.is_ipv4() { &*self.v4 } else { &*self.v6 }
    }

    fn each<T>(&self, of: impl Fn(&dyn DatagramPort) -> T) -> [T; 2] {
        [of(&*self.v4), of(&*self.v6)]
    }
}

fn is_v4(path: &Path) -> bool {
    path.address.source.is_ipv4()
}

impl DatagramPort for BothFamilies {
    fn local_addr(&self) -> SocketAddr {
        self.v4.local_addr()
    }

    fn numbering(&self) -> Numbering {
        // Only IPv4's packets have identifications.
        self.v4.numbering()
    }

    fn send_until(
        &self,
        burst: &dyn Trains,
        cursor: &mut BurstCursor,
        end: usize,
    ) -> io::Result<Sent> {
        loop {
            let mut rest = (cursor.trains..end).map_while(|index| Some(burst.train(index)?.path));
            let Some(first) = rest.next() else { return Ok(Sent::All) };
            let of_v4 = is_v4(first);
            let alike = 1 + rest.take_while(|path| is_v4(path) == of_v4).count();
            let port = if of_v4 { &self.v4 } else { &self.v6 };
            let sent = port.send_until(burst, cursor, cursor.trains + alike)?;
            if sent != Sent::All {
                return Ok(sent);
            }
        }
    }

    fn receive_all(&self, take: &mut dyn FnMut(&mut Packets<'_>)) -> io::Result<Intake> {
        let v4 = self.v4.receive_all(take);
        match (v4, self.v6.receive_all(take)) {
            (Ok(one), Ok(other)) => {
                Ok(Intake { packets: one.packets + other.packets, more: one.more || other.more })
            }
            (Ok(some), Err(_)) | (Err(_), Ok(some)) => Ok(some),
            (Err(error), Err(other)) => {
                let waits = error.kind() == io::ErrorKind::WouldBlock;
                Err(if waits { other } else { error })
            }
        }
    }

    fn join(&self, group: IpAddr) -> io::Result<()> {
        self.of(group).join(group)
    }

    fn leave(&self, group: IpAddr) {
        self.of(group).leave(group);
    }

    fn join_at(&self, group: IpAddr, interfaces: &[u32]) -> io::Result<()> {
        self.of(group).join_at(group, interfaces)
    }

    fn leave_but(&self, group: IpAddr, interfaces: &[u32]) {
        self.of(group).leave_but(group, interfaces);
    }

    fn leave_by(&self, interfaces: &[String]) {
        self.v4.leave_by(interfaces);
        self.v6.leave_by(interfaces);
    }

    fn arrived_at(&self, group: IpAddr) -> Option<u32> {
        self.of(group).arrived_at(group)
    }

    fn has_input(&self) -> io::Result<bool> {
        Ok(self.v4.has_input()? || self.v6.has_input()?)
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.v4.descriptors().beside(self.v6.descriptors())
    }

    fn readiness(&self) -> Readiness {
        let [v4, v6] = self.each(|port| port.readiness());
        v4 | v6
    }

    fn set_waker(&self, waker: Waker) {
        self.v4.set_waker(waker.clone());
        self.v6.set_waker(waker);
    }

    fn counters(&self) -> DatagramCounters {
        let [mut sum, v6] = self.each(|port| port.counters());
        sum.sent += v6.sent;
        sum.lost += v6.lost;
        sum.too_long += v6.too_long;
        sum.received += v6.received;
        sum.damaged += v6.damaged;
        sum
    }

    fn overruns(&self) -> u64 {
        self.each(|port| port.overruns()).iter().sum()
    }

    fn self_test(&self) -> io::Result<Findings> {
        self.v4.self_test()
    }

    fn leaves_as_meant(&self, path: &Path, packet: &[u8]) -> io::Result<Option<bool>> {
        let port = if is_v4(path) { &self.v4 } else { &self.v6 };
        port.leaves_as_meant(path, packet)
    }
}
